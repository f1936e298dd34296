"""The units of deploy/systemd under a real systemd, process 1 of namespaces of its own."""

import os
import pathlib
import re
import subprocess

from tests.real_programs import RealProgramsTest, main
from tools.daemon import ROOT, pack_demo

FOLDER = ROOT / "tests" / "deploy"
SYSTEMD = pathlib.Path("/lib/systemd/systemd")
RUN_SECONDS = 300


class Units(RealProgramsTest):
    def setUp(self) -> None:
        if os.geteuid() != 0 or not SYSTEMD.exists():
            self.skipTest("takes root and systemd")
        layers = (
            "mkdir /mnt/upper /mnt/work /mnt/root && mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work"
        )
        mounts = f"mount -t tmpfs tmpfs /mnt && {layers} /mnt/root"
        trial = ["unshare", "--mount", "--pid", "--cgroup", "--ipc", "--net", "--uts", "--fork", "sh", "-c", mounts]
        if (
            subprocess.run(trial, capture_output=True).returncode != 0
            or " - cgroup2 " not in pathlib.Path("/proc/self/mountinfo").read_text()
        ):
            self.skipTest("takes namespaces, overlays and cgroup2")

    def test_they_start_serve_reload_restart_and_stop(self) -> None:
        store = pack_demo(self.binaries, self.folder, "bf16", "bf16")
        command = ["bash", FOLDER / "systemd_in_namespaces.sh", self.binaries, store, FOLDER / "systemd_script.sh", self.folder]
        run = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=RUN_SECONDS)
        self.assertEqual(run.returncode, 0, run.stderr)
        log = (self.folder / "log").read_text()
        journal = (self.folder / "journal").read_text()
        said = dict(re.findall(r"^([^:\n]+): (.*?) ?$", log, re.M))
        self.assertEqual(
            said,
            {
                "started": "0",
                "without a token": "1",
                "compiled pattern": "0",
                "over HTTP": "0",
                "reloaded": "0",
                "lines before and after a rotation": "0",
                "after SIGKILL": "0",
                "states": "inactive inactive",
                "kept": "learned residency",
                "moed with a wrong setting": "2 0",
                "moed-http with a wrong setting": "2 0",
                "too little memory": "1",
                "by itself after many tries": "0",
                "without settings": "1 AssertPathExists=/etc/moed/moed.env was not met",
                "the smallest budget that works": said.get("the smallest budget that works"),
            },
            log + journal,
        )
        self.assertRegex(said["the smallest budget that works"], r"^\d+ bytes$")
        for unit in ("moed", "moed-http"):
            self.assertRegex(journal, rf" {unit}\[\d+\]: .* sandbox: files and ports by Landlock")
        self.assertNotRegex(journal, r"SIGSYS|core-dump|Failed to set up")


if __name__ == "__main__":
    main()
