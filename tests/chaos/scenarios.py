"""What the scenarios share: one store, one daemon that most of them treat badly, and others of their own."""

import contextlib
import os
import pathlib
import resource
from collections.abc import Iterator
from typing import ClassVar

from tests.chaos import protocol
from tests.chaos.faults import Faults
from tests.chaos.patient import BUDGET, Patient
from tests.real_programs import RealProgramsTest
from tools.daemon import Daemon, pack_demo, running
from tools.server_process import ServerProcess

# Half the experts fit, so that there are reads all the time.
WITH_ANY_READS = ("--memory-budget", BUDGET, "--kv-budget", "2MiB", "--verify-reads", "always", "--threads", 1)
FLAGS = (*WITH_ANY_READS, "--io-backend", "buffered")


class Scenarios(RealProgramsTest):
    store: ClassVar[pathlib.Path]
    faults: ClassVar[Faults]
    patient: ClassVar[Patient]  # what most scenarios share
    request_log: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        protocol.load(cls.folder / "stubs")
        cls.store = pack_demo(cls.binaries, cls.folder, "q4", "q8")
        cls.faults = Faults(cls.binaries.parent / "tests" / "libmoed_chaos_faults.so", cls.folder / "faults")
        cls.addClassCleanup(cls.faults.close)
        cls.request_log = cls.folder / "requests.jsonl"
        flags = ("--max-running", 2, "--queue-capacity", 8, "--request-log", cls.request_log)
        cls.patient = cls.enterClassContext(cls.well(*flags))

    @classmethod
    @contextlib.contextmanager
    def well(cls, *flags: object) -> Iterator[Patient]:
        """A daemon that is well, and ends well unless it has ended."""
        with cls.serving(*flags) as daemon:
            patient = Patient(daemon)
            try:
                yield patient
                if daemon.running():
                    code = daemon.stop()
                    assert code == 0, daemon.log()
            finally:
                patient.close()

    @classmethod
    def serving(cls, *flags: object) -> contextlib.AbstractContextManager[Daemon]:
        return running(cls.binaries, "--store", cls.store, *FLAGS, *flags, environment=cls.faults.environment)

    def tearDown(self) -> None:
        self.faults.end()
        self.faults.set_wall_clock(0)

    def own_faults(self) -> Faults:
        faults = Faults(self.binaries.parent / "tests" / "libmoed_chaos_faults.so", self.folder / "own_faults")
        self.addCleanup(faults.close)
        return faults

    def started(self, faults: Faults, *flags: object, within: int | None = None) -> ServerProcess:
        """Not ready yet, nor perhaps ever. `within`: bytes of address space."""
        limits = [f"--as={within}"] if within else []
        own = ("--store", self.store, *FLAGS, *flags, "--listen", "127.0.0.1:0", "--metrics-listen", "off")
        command = ["prlimit", *limits, str(self.binaries / "moed"), *map(str, own)]
        process = ServerProcess(command, {**os.environ, "MOED_DRAIN_DELAY_SECONDS": "0", **faults.environment})
        self.addCleanup(process.close)
        return process
