"""Real file systems: one whose reads go wrong, below the kernel, and one that is full."""

import contextlib
import errno
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

from tests.chaos.faults import Fault, Faults
from tests.chaos.patient import DATA_LOSS, LONG, LONG_PROMPT, MIB, PROMPT, TIMES, Patient, eventually, request
from tests.chaos.scenarios import FLAGS, WITH_ANY_READS, Scenarios
from tests.real_programs import metrics_of
from tools.daemon import ROOT, running
from tools.server_process import ServerProcess

DISK_BYTES = 12 * MIB
SPILL = ("--kv-spill-budget", "2MiB", "--max-kept-sessions", 16)


class Disks(Scenarios):
    @contextlib.contextmanager
    def mounted(self, *command: object) -> Iterator[pathlib.Path]:
        """The test is skipped where this is not allowed. The folder's name comes last in `command`."""
        folder = pathlib.Path(self.enterContext(self.scratch("mounted")))
        tried = subprocess.run([*map(str, command), str(folder)], capture_output=True, text=True)
        if tried.returncode != 0:
            self.skipTest(f"{command[0]}: {tried.stderr.strip()}")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)

    @contextlib.contextmanager
    def scratch(self, name: str) -> Iterator[str]:
        folder = self.folder / name
        folder.mkdir()
        try:
            yield str(folder)
        finally:
            folder.rmdir()

    @contextlib.contextmanager
    def faulty_file_system(self, faults: Faults) -> Iterator[tuple[pathlib.Path, ServerProcess]]:
        """Its store, and the process that serves it."""
        if not os.access("/dev/fuse", os.W_OK) or os.geteuid() != 0:
            self.skipTest("needs /dev/fuse and root")
        if importlib.util.find_spec("fusepy") is None:
            self.skipTest("needs python3-fusepy")
        with self.scratch("faulty") as folder:
            module = [sys.executable, "-B", "-m", "tests.chaos.faulty_file_system", folder, str(self.store)]
            process = ServerProcess([*module, faults.environment["MOED_FAULTS"]], {**os.environ, "PYTHONPATH": str(ROOT)})
            try:
                process.wait_for(lambda: os.path.ismount(folder) or None, "the file system")
                yield pathlib.Path(folder) / "store.moed", process
            finally:
                subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)
                process.close()

    def test_a_file_system_whose_reads_go_wrong(self) -> None:
        faults = self.own_faults()
        with self.faulty_file_system(faults) as (store, file_system):
            for backend in ("io_uring", "direct", "buffered") if LONG else ("io_uring",):
                flags = ("--store", store, *WITH_ANY_READS, "--io-backend", backend, "--request-log", "off")
                with self.subTest(backend), self.over(*flags) as patient:
                    self.assertEqual(patient.well, self.patient.well)
                    for _ in range(TIMES):
                        self.goes_wrong(patient, faults, short=backend != "io_uring")
            with self.over("--store", store, *FLAGS) as patient:
                file_system.close()  # as a device that is pulled out
                self.assertEqual((got := patient.until_struck())[0], DATA_LOSS, got)
                self.assertTrue(patient.idle())

    @contextlib.contextmanager
    def over(self, *flags: object) -> Iterator[Patient]:
        with running(self.binaries, *flags) as daemon, contextlib.closing(Patient(daemon)) as patient:
            yield patient
            self.assertEqual(daemon.stop(), 0, daemon.log())

    def goes_wrong(self, patient: Patient, faults: Faults, short: bool) -> None:
        """`short`: with short answers. Linux 6.18 gives io_uring other bytes after one of FUSE's, with the whole length."""
        kinds = (
            (Fault.ERROR, errno.EIO, "Input/output error"),
            (Fault.END_OF_FILE, 0, "ends early"),
            (Fault.TORN, 0, "is damaged"),
            (Fault.FLIPPED, 0, "is damaged"),
        )
        for fault, value, words in kinds:
            with faults.during(fault, value):
                self.assertEqual((got := patient.until_struck())[0], DATA_LOSS, got)
                self.assertIn(words, got[1])
                self.assertGreater(faults.struck(), 0)
            patient.check()
        for fault, value in ((Fault.SHORT, 0), (Fault.LATE, 300_000)):
            with faults.during(fault if short else Fault.LATE, value):
                self.assertEqual(patient.answer(), patient.well)
                self.assertGreater(faults.struck(), 0)
        patient.check()

    def test_a_disk_that_is_really_full(self) -> None:
        mkfs = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin")
        if mkfs is None or os.geteuid() != 0:
            self.skipTest("needs mkfs.ext4 and root")
        image = self.folder / "disk"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        subprocess.run([mkfs, "-q", "-m", "0", "-O", "^has_journal", image], check=True)
        with self.mounted("mount", "-o", "loop", image) as disk:
            kept = ("--learned-state", disk / "learned", "--residency", disk / "residency")
            ends = ("--trace", disk / "trace", "--record-routing", disk / "routing", "--request-log", disk / "requests.jsonl")
            with self.serving(*kept) as daemon:
                daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 4)
                self.assertEqual(daemon.stop(), 0, daemon.log())
            with self.well(*kept, *ends, "--kv-spill", disk, *SPILL) as patient:
                self.fill(disk)
                for turn in range(24):
                    self.converse(patient, f"session {turn}")
                eventually(lambda: "moe_kv_spill_ended 1" in metrics_of(patient.daemon), "the spill to end")
                patient.check()
                (disk / "filler").unlink()
                size = (disk / "requests.jsonl").stat().st_size
                patient.answer()
                eventually(lambda: (disk / "requests.jsonl").stat().st_size > size, "lines again")
                before = [(disk / name).read_bytes() for name in ("learned", "residency")]
                self.fill(disk)
                self.assertEqual(patient.daemon.stop(), 1, patient.daemon.log())
                for name in ("--trace", "--learned-state", "--residency", "--record-routing"):
                    self.assertIn(name, patient.daemon.log())
            self.assertEqual([(disk / name).read_bytes() for name in ("learned", "residency")], before)
            self.assertEqual([path.name for path in disk.iterdir() if "partial" in path.name], [])

    def converse(self, patient: Patient, session: str) -> None:
        asked = request(8, LONG_PROMPT)
        asked.session_id = session
        patient.inference.Generate(asked)

    def fill(self, disk: pathlib.Path) -> None:
        """To the last block."""
        with (disk / "filler").open("ab", buffering=0) as file:
            for size in (MIB, 4096, 512):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
