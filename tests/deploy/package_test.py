"""The Debian packages: what is in them, and in a fresh Debian installed, served from and removed."""

import gzip
import pathlib
import re
import subprocess
import tarfile
from typing import ClassVar

from tests.real_programs import RealProgramsTest, main
from tools.daemon import DEMO_CHECKPOINT, ROOT

PROGRAMS = {"moed": {"moed", "moed-http"}, "moed-tools": {"moectl", "moed-pack", "moed-plan"}}
SCRIPT = ROOT / "tests" / "deploy" / "package_in_root.sh"


class Packages(RealProgramsTest):
    debs: ClassVar[dict[str, pathlib.Path]]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        # Compressed in less time than those that are given to people.
        command = ["cpack", "-G", "DEB", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", "-B", str(cls.folder)]
        subprocess.run(command, cwd=cls.binaries.parent, check=True, capture_output=True)
        cls.debs = {path.name.partition("_")[0]: path for path in cls.folder.rglob("*.deb")}
        assert set(cls.debs) == set(PROGRAMS), cls.debs

    def field(self, name: str, field: str) -> str:
        return subprocess.run(
            ["dpkg-deb", "--field", self.debs[name], field], check=True, capture_output=True, text=True
        ).stdout.strip()

    def files(self, name: str) -> dict[str, bytes]:
        """Of what is no folder, by absolute path."""
        tar = self.folder / f"{name}.tar"
        with tar.open("wb") as out:
            subprocess.run(["dpkg-deb", "--fsys-tarfile", self.debs[name]], check=True, stdout=out)
        with tarfile.open(tar) as archive:
            members = [member for member in archive if member.isfile()]
            for member in members:
                self.assertEqual((member.uid, member.gid, member.mode & 0o022), (0, 0, 0), member.name)
            return {member.name.removeprefix("."): archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]

    def test_each_has_its_programs_with_manual_pages(self) -> None:
        for name, programs in PROGRAMS.items():
            files = self.files(name)
            self.assertEqual({path.removeprefix("/usr/bin/") for path in files if path.startswith("/usr/bin/")}, programs)
            for program in programs:
                page = gzip.decompress(files[f"/usr/share/man/man1/{program}.1.gz"]).decode()
                said = set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", self.run_program(program, "--help").stdout, re.M))
                self.assertGreater(len(said), 0)
                self.assertEqual({flag for flag in said if flag.replace("-", "\\-") not in page}, set(), program)
            for path in ("copyright", "changelog.gz"):
                self.assertIn(f"/usr/share/doc/{name}/{path}", files)
        self.assertEqual(set(self.files("moed")) & set(self.files("moed-tools")), set())

    def test_the_manual_pages_are_roff(self) -> None:
        for name in PROGRAMS:
            for path, contents in self.files(name).items():
                if path.startswith("/usr/share/man/"):
                    command = ["groff", "-man", "-Tutf8", "-ww", "-rLL=120n"]
                    run = subprocess.run(command, input=gzip.decompress(contents), capture_output=True)
                    self.assertEqual((run.returncode, run.stderr), (0, b""), path)

    def test_the_daemon_has_what_its_units_name(self) -> None:
        files = self.files("moed")
        for unit in ("moed", "moed-http"):
            text = files[f"/lib/systemd/system/{unit}.service"].decode()
            for path in re.findall(r"(?:EnvironmentFile=-?|ExecStart=|Documentation=file://)(/\S+)", text):
                self.assertIn(path, files, unit)
        conffiles = subprocess.run(
            ["dpkg-deb", "--info", self.debs["moed"], "conffiles"], check=True, capture_output=True, text=True
        ).stdout.split()
        self.assertEqual(set(conffiles), {path for path in files if path.startswith("/etc/")})

    def test_settings_in_the_files_are_options(self) -> None:
        files = self.files("moed")
        for program in PROGRAMS["moed"]:
            flags = self.run_program(program, "--help").stdout
            prefix = program.upper().replace("-", "_") + "_"
            named = re.findall(rf"^#?{prefix}([A-Z_]+)=", files[f"/etc/moed/{program}.env"].decode(), re.M)
            self.assertGreater(len(named), 0)
            for name in named:
                self.assertIn(f"--{name.lower().replace('_', '-')} ", flags)

    def test_libraries_are_packages(self) -> None:
        for name, programs in PROGRAMS.items():
            depends = self.field(name, "Depends")
            for program in programs:
                linked = subprocess.run(["ldd", self.binaries / program], check=True, capture_output=True, text=True).stdout
                for library, package in (
                    ("libgrpc++", "libgrpc++1.51"),
                    ("liburing", "liburing2"),
                    ("libseccomp", "libseccomp2"),
                    ("libssl", "libssl3"),
                ):
                    if library in linked:
                        self.assertIn(package, depends)
        self.assertIn(f"moed-tools (= {self.field('moed-tools', 'Version')})", self.field("moed", "Depends"))

    def test_a_fresh_debian_installs_serves_and_removes_them(self) -> None:
        suite = re.findall(r"^VERSION_CODENAME=(\w+)$", pathlib.Path("/etc/os-release").read_text(), re.M)[0]
        root = ["mmdebstrap", "--variant=apt", "--quiet", "--customize-hook=mkdir $1/tmp/packages"]
        copies = [f"--customize-hook=copy-in {deb} /tmp/packages" for deb in self.debs.values()]
        copies += [f"--customize-hook=copy-in {path} /tmp" for path in (DEMO_CHECKPOINT, SCRIPT)]
        hooks = [f'--customize-hook=chroot "$1" sh /tmp/{SCRIPT.name}', f"--customize-hook=copy-out /tmp/answer {self.folder}"]
        run = subprocess.run([*root, *copies, *hooks, suite, "/dev/null"], capture_output=True, text=True)
        hint = "\n(it needs root or user namespaces, and Debian's packages from the network)"
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr + hint)
        self.assertGreater(len((self.folder / "answer").read_text()), 16)


if __name__ == "__main__":
    main()
