"""Clocks, signals, ends, and memory that is not there."""

import contextlib
import itertools
import json
import signal
import subprocess
import unittest

from tests.chaos.faults import Fault
from tests.chaos.patient import LATE_NANOS, LONG, LONG_PROMPT, MIB, TIMES, UNAVAILABLE, WAIT_SECONDS, eventually, request
from tests.chaos.scenarios import Scenarios
from tools.server_process import ServerProcess, wait_until


class Ends(Scenarios):
    def test_the_wall_clock_jumps(self) -> None:
        year = 365 * 24 * 3600
        for ahead in (year, -year, 3600, -3600, 0) if LONG else (year, 0):
            with self.subTest(ahead=ahead):
                call = self.patient.inference.GenerateStream(request(40))
                cancelled = self.patient.inference.GenerateStream(request(400), timeout=WAIT_SECONDS)
                next(call)
                next(cancelled)
                self.faults.set_wall_clock(ahead)
                self.assertTrue(list(call)[-1].HasField("finish"))
                cancelled.cancel()
                self.patient.check()
                self.assertTrue(self.patient.ticked())
        for line in self.request_log.read_text().splitlines()[-6:]:
            self.assertLess(json.loads(line)["duration_seconds"], WAIT_SECONDS)
            self.assertNotEqual(json.loads(line)["code"], "DEADLINE_EXCEEDED", line)

    def test_signals_while_the_model_is_loaded(self) -> None:
        faults = self.own_faults()
        for last in (signal.SIGTERM, signal.SIGINT, None):
            with self.subTest(last=last):
                faults.begin(Fault.HELD, MIB)  # the weights; header and tokenizer are smaller
                process = self.started(faults)
                eventually(lambda: faults.struck() > 0, "the weights to be read")
                process.send_signal(signal.SIGHUP)
                process.wait_for_line("(nothing to read anew)")
                if last is not None:
                    process.send_signal(last)
                    self.assertEqual(process.wait(WAIT_SECONDS), 128 + last, process.log())
                    continue
                faults.end()
                process.wait_for_line("(ready: )")
                self.assertEqual(process.stop(), 0, process.log())

    def test_signals_while_requests_wait_and_are_read_and_answered(self) -> None:
        self.faults.begin(Fault.LATE, LATE_NANOS)
        with self.well("--max-running", 1, "--drain-seconds", 600) as patient:
            answered = patient.inference.GenerateStream(request(60))
            next(answered)
            queued = patient.inference.GenerateStream(request(4, LONG_PROMPT))
            eventually(lambda: patient.stats().waiting == 1, "one to wait")
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
                patient.daemon.send_signal(number)
            eventually(lambda: "draining" in patient.daemon.log(), "the drain")
            for call in (answered, queued):
                self.assertTrue(list(call)[-1].HasField("finish"))
            self.assertEqual(patient.daemon.wait(WAIT_SECONDS), 0, patient.daemon.log())

    def test_a_second_signal_ends_what_hangs(self) -> None:
        with self.well("--drain-seconds", 0) as patient:
            self.faults.begin(Fault.HELD)
            call = patient.inference.GenerateStream(request(60, LONG_PROMPT))
            eventually(lambda: self.faults.struck() > 0, "a read to hang")
            patient.daemon.send_signal(signal.SIGTERM)
            eventually(lambda: "drain limit reached" in patient.daemon.log(), "the drain to end")

            def asked_again() -> bool:
                patient.daemon.send_signal(signal.SIGTERM)
                return "ending at once" in patient.daemon.log()

            eventually(asked_again, "a second signal to count")
            self.assertEqual(patient.daemon.wait(WAIT_SECONDS), 128 + signal.SIGTERM)
            self.assertEqual(call.code(), UNAVAILABLE)

    def test_after_sigkill_it_starts_with_what_was_kept(self) -> None:
        folder = self.folder / "killed"
        folder.mkdir()
        kept = ("--learned-state", folder / "learned", "--residency", folder / "residency")
        with self.well(*kept) as patient:
            well = patient.well
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.assertEqual(set(before), {"learned", "residency"})
        for _ in range(TIMES):
            with self.well(*kept) as patient:
                self.assertEqual(patient.well, well)
                next(patient.inference.GenerateStream(request(200)))
                patient.daemon.send_signal(signal.SIGKILL)
                self.assertEqual(patient.daemon.wait(WAIT_SECONDS), -signal.SIGKILL)
            self.assertEqual((folder / "learned").read_bytes(), before["learned"])

    def test_after_sigkill_it_knows_what_was_saved_while_it_answered(self) -> None:
        folder = self.folder / "saved"
        folder.mkdir()
        kept = ("--learned-state", folder / "learned", "--residency", folder / "residency")
        with self.well(*kept) as patient:
            well = patient.well
            answer = patient.inference.GenerateStream(request(200))
            next(answer)
            patient.daemon.moectl("residency", "save")
            self.assertEqual({path.name for path in folder.iterdir()}, {"learned", "residency"})
            self.assertTrue(list(answer)[-1].HasField("finish"))
            patient.daemon.send_signal(signal.SIGKILL)
            self.assertEqual(patient.daemon.wait(WAIT_SECONDS), -signal.SIGKILL)
        with self.well(*kept) as patient:
            self.assertRegex(patient.daemon.log(), r"taken up from \S*learned: [1-9]")
            self.assertEqual(patient.well, well)

    def ends_by_itself(self, process: ServerProcess) -> bool:
        """False: it serves. Its end has a reason and is no crash."""

        def served_or_ended() -> str | None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return f"ended {process.wait(0)}"
            return "serves" if "ready: " in process.log() else None

        how = wait_until(served_or_ended, "it to serve or to end", WAIT_SECONDS)
        if how == "serves":
            self.assertEqual(process.stop(), 0, process.log())
            return False
        self.assertEqual(how, "ended 1", process.log())
        self.assertRegex(process.log(), r"(?m)^moed: .*memory", process.log())
        return True

    def test_no_memory_at_any_of_its_mappings(self) -> None:
        faults = self.own_faults()
        for number in itertools.count():
            faults.refuse_mapping(number)
            with self.subTest(mapping=number):
                ended = self.ends_by_itself(self.started(faults))
            if not faults.refused():
                self.assertFalse(ended)
                self.assertGreater(number, 3)
                return

    @unittest.skipUnless(LONG, "long")
    def test_no_address_space_for_it(self) -> None:
        """From where its libraries fit to where it serves: memory, or a thread's stack, is short at one place or another."""
        least, enough = 64 * MIB, 0
        faults = self.own_faults()
        process = self.started(faults)
        process.wait_for_line("(ready: )")
        enough = process.memory_bytes("VmPeak")
        process.stop()
        served = []
        limits = [least + (enough - least) * part // 400 for part in range(400)]
        # How many threads gRPC makes, and so how many stacks there are, is another number each time.
        for limit in (*limits, 2 * enough):
            with self.subTest(limit=limit):
                served.append(not self.ends_by_itself(self.started(faults, within=limit)))
        self.assertEqual((served[0], served[-1]), (False, True))
