"""What the daemon gives up (--sandbox): foreign code inside it is refused what serving does not need, and serving goes on."""

import contextlib
import errno
import os
import pathlib
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from tests.real_programs import RealProgramsTest, main, metrics_of
from tools.daemon import Daemon, pack_demo
from tools.server_process import ServerError

ACCESS, DENIED, UNKNOWN = errno.EACCES, errno.EPERM, errno.ENOSYS
# What tests/system/intruder.cc tries: refused how, and how it ends without a sandbox (None: that depends on who runs this).
ATTEMPTS = {
    "read a file": (ACCESS, 0),
    "change a file": (ACCESS, 0),
    "cut a file": (UNKNOWN, 0),
    "make a file": (ACCESS, 0),
    "rename a file": (ACCESS, 0),
    "change a file's mode": (DENIED, 0),
    "list a folder": (ACCESS, 0),
    "change the store": (ACCESS, 0),
    "start a program": (DENIED, 0),
    "fork": (DENIED, 0),
    "become a program": (DENIED, errno.ENOENT),
    "trace": (DENIED, errno.ESRCH),
    "read another's memory": (DENIED, 0),
    "mount": (DENIED, None),
    "unshare": (DENIED, 0),
    "send a signal": (UNKNOWN, 0),
    "new IPv4 socket": (DENIED, 0),
    "new unix socket": (DENIED, 0),
    "new netlink socket": (DENIED, 0),
    "a call of no table": (UNKNOWN, 0),
    "read the store": (0, 0),
    "read of /proc": (0, 0),
    "start a thread": (0, 0),
}
ANSWER = ("generate", "--prompt", "Once upon a time", "--max-new-tokens", 8, "--temperature", 0)


def status_of_threads(pid: int) -> Iterator[dict[str, str]]:
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
            yield dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)


class SandboxTest(RealProgramsTest):
    store: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for name in ("stores", "others", "state"):
            (cls.folder / name).mkdir()
        (cls.folder / "others" / "secret").write_text("of others")
        cls.store = pack_demo(cls.binaries, cls.folder / "stores", "q8", "q8")

    def environment(self, report: pathlib.Path) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self.binaries.parent / "tests" / "libmoed_intruder.so"),
            "INTRUDER_REPORT": str(report),
            "INTRUDER_FOLDER": str(self.folder / "others"),
            "INTRUDER_STORE": str(self.store),
        }

    @contextmanager
    def intruded(self, *flags: object, **variables: str) -> Iterator[tuple[Daemon, pathlib.Path]]:
        report = self.folder / "others" / "report"
        report.unlink(missing_ok=True)
        flags = ("--store", self.store, "--memory-budget", "64MiB", *flags)
        with self.running(*flags, environment={**self.environment(report), **variables}) as daemon:
            yield daemon, report

    def attempts(self, daemon: Daemon, report: pathlib.Path) -> dict[str, int]:
        """As they ended when /metrics was scraped."""
        metrics_of(daemon)
        lines = report.read_text().splitlines()[-len(ATTEMPTS) :]
        found = (re.fullmatch(r"(.*) (\d+)", line) for line in lines)
        return {match[1]: int(match[2]) for match in found if match}

    def restart_under(self, daemon: Daemon, log: pathlib.Path) -> str:
        """The same answer, from a model that was loaded anew, with files read anew."""
        daemon.moectl("unload")
        daemon.moectl("load")
        log.rename(log.with_name("moved"))
        os.kill(daemon.pid, signal.SIGHUP)
        daemon.wait_for_line("(opened anew)")
        return daemon.moectl(*ANSWER).stdout

    def test_what_is_refused_and_what_goes_on(self) -> None:
        state = self.folder / "state"
        kept = ("--residency", state / "residency", "--learned-state", state / "learned", "--request-log", state / "log")
        with self.intruded("--sandbox", "require", *kept, "--kv-spill", state, "--kv-spill-budget", "1MiB") as (daemon, report):
            daemon.wait_for_line("(no new sockets) from here on")
            self.assertEqual(self.attempts(daemon, report), {name: refused for name, (refused, _) in ATTEMPTS.items()})
            for status in status_of_threads(daemon.pid):
                self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"), status["Name"])
            self.assertRegex(metrics_of(daemon), r'moe_sandbox\{by="landlock"\} [1-9]')
            self.assertIn('moe_sandbox{by="seccomp"} 1', metrics_of(daemon))
            self.assertEqual(daemon.moectl(*ANSWER).stdout, self.restart_under(daemon, state / "log"))
            self.assertEqual(daemon.stop(), 0)
        self.assertEqual({path.name for path in state.iterdir()}, {"residency", "learned", "log", "moved"})
        self.assertIn("Generate", (state / "log").read_text())

    def test_without_it_nothing_is_refused(self) -> None:
        with self.intruded("--sandbox", "off") as (daemon, report):
            expected = {name: allowed for name, (_, allowed) in ATTEMPTS.items() if allowed is not None}
            self.assertLessEqual(expected.items(), self.attempts(daemon, report).items())
            self.assertIn('moe_sandbox{by="seccomp"} 0', metrics_of(daemon))

    def test_a_kernel_without_landlock(self) -> None:
        with self.intruded(INTRUDER_NO_LANDLOCK="1") as (daemon, report):
            self.assertIn("the kernel has no Landlock", daemon.log())
            self.assertEqual(self.attempts(daemon, report)["start a program"], DENIED)
        without = self.intruded("--sandbox", "require", INTRUDER_NO_LANDLOCK="1")
        with self.assertRaisesRegex(ServerError, "--sandbox require: the kernel has no Landlock"), without:
            pass

    def test_a_file_beneath_the_root_is_not_written(self) -> None:
        run = self.run_program("moed", "--store", self.store, "--listen", "127.0.0.1:0", "--trace", "/trace.json")
        self.assertEqual(
            (run.returncode, "/trace.json would have everything beneath / written" in run.stderr), (2, True), run.stderr
        )

    def test_where_no_device_is_found_the_sandbox_is_named(self) -> None:
        flags = ("--store", self.store, "--memory-budget", "64MiB", "--listen", "127.0.0.1:0", "--backend", "cuda")
        for sandbox, named in (("on", True), ("off", False)):
            run = self.run_program("moed", *flags, "--sandbox", sandbox, environment={"CUDA_VISIBLE_DEVICES": ""})
            self.assertEqual((run.returncode, "--sandbox off tells" in run.stderr), (1, named), run.stderr)


if __name__ == "__main__":
    main()
