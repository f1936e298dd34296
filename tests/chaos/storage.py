"""Reads that go wrong, a store that is cut short, files that may not grow."""

import contextlib
import errno
import itertools
import json
import os
import resource
import threading
from typing import Any

from tests.chaos.faults import Fault
from tests.chaos.patient import DATA_LOSS, LONG, LONG_PROMPT, PROMPT, TIMES, eventually, request
from tests.chaos.scenarios import Scenarios
from tests.system.http2_client import Http2Client, header, message


class Storage(Scenarios):
    def test_reads_that_go_wrong(self) -> None:
        kinds = (
            (Fault.ERROR, errno.EIO, DATA_LOSS, "Input/output error"),
            (Fault.ERROR, errno.ESTALE, DATA_LOSS, "Stale file handle"),
            (Fault.END_OF_FILE, 0, DATA_LOSS, "ends early"),
            (Fault.TORN, 0, DATA_LOSS, "is damaged"),
            (Fault.FLIPPED, 0, DATA_LOSS, "is damaged"),
        )
        for _, (fault, value, code, words) in itertools.product(range(TIMES), kinds):
            with self.subTest(fault.name, value=value):
                with self.faults.during(fault, value):
                    self.assertEqual((got := self.patient.until_struck())[0], code, got)
                    self.assertIn(words, got[1])
                    self.assertGreater(self.faults.struck(), 0)
                self.patient.check()

    def test_reads_that_are_only_slow_or_in_pieces_change_nothing(self) -> None:
        for fault, value in ((Fault.SHORT, 0), (Fault.LATE, 500_000), (Fault.ERROR, errno.EINTR)):
            with self.subTest(fault.name):
                with self.faults.during(fault, value):
                    if value == errno.EINTR:  # again and again would be for ever
                        threading.Thread(target=self.end_once_struck).start()
                    self.assertEqual(self.patient.answer(), self.patient.well)
                    self.assertGreater(self.faults.struck(), 0)
                self.patient.check()

    def end_once_struck(self) -> None:
        eventually(lambda: self.faults.struck() > 0, "a read to be struck")
        self.faults.end()

    def test_a_read_that_hangs_holds_nobody_longer_than_itself(self) -> None:
        def named(name: str, new_tokens: int, text: str = PROMPT) -> Any:
            asked = request(new_tokens, text)
            asked.request_id = name
            return asked

        with self.faults.during(Fault.HELD), contextlib.closing(Http2Client(self.patient.daemon.address)) as client:
            calls = [self.patient.inference.GenerateStream(named(name, 60, LONG_PROMPT)) for name in ("cancelled", "patient")]
            eventually(lambda: self.faults.struck() > 0, "a read to hang")
            calls[0].cancel()
            late = client.open_stream("/moe.v1.Inference/GenerateStream", header("grpc-timeout", b"50m"))
            client.send_data(late, message(named("late", 4).SerializeToString()), end=True)
            client.wait_for_end(late)  # the daemon tells it at once
            stats = self.patient.stats()
            self.assertGreater(stats.running + stats.waiting, 0, "the read hangs no more")
        self.assertTrue(list(calls[1])[-1].HasField("finish"))
        self.patient.check()
        ends = {"cancelled": "CANCELLED", "patient": "OK", "late": "DEADLINE_EXCEEDED"}
        eventually(lambda: ends.items() <= self.logged_codes().items(), f"{ends} to be logged")

    def logged_codes(self) -> dict[str, str]:
        """By request."""
        lines = [json.loads(line) for line in self.request_log.read_text().splitlines()]
        return {line["id"]: line["code"] for line in lines}

    def test_the_store_is_cut_short_and_made_whole_and_unlinked(self) -> None:
        whole = self.store.read_bytes()
        for keep in (0.6, 0.0)[: None if LONG else 1]:
            os.truncate(self.store, int(len(whole) * keep))
            code, words = self.patient.until_struck()
            self.assertEqual(code, DATA_LOSS)
            self.assertIn("ends early", words)
            with self.store.open("r+b") as file:
                file.write(whole)
            self.patient.check()
        aside = self.store.with_suffix(".aside")
        aside.write_bytes(whole)
        self.store.unlink()
        self.patient.check()
        aside.rename(self.store)

    def test_a_full_disk_keeps_nobody_from_an_answer(self) -> None:
        self.patient.limit(resource.RLIMIT_FSIZE, self.request_log.stat().st_size)
        self.assertEqual(self.patient.answer(), self.patient.well)
        self.patient.check()
        self.patient.limit(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)
        before = self.request_log.stat().st_size
        self.patient.answer()
        eventually(lambda: self.request_log.stat().st_size > before, "lines again")

    def test_a_full_disk_at_the_end_is_named_and_leaves_what_was_there(self) -> None:
        folder = self.folder / "full"
        folder.mkdir()
        learned, residency, trace, routing = (folder / name for name in ("learned", "residency", "trace", "routing"))
        kept = ("--learned-state", learned, "--residency", residency)
        with self.serving(*kept) as daemon:
            daemon.moectl("generate", "--prompt", PROMPT, "--max-new-tokens", 4)
            self.assertEqual(daemon.stop(), 0, daemon.log())
        before = [learned.read_bytes(), residency.read_bytes()]
        with self.serving(*kept, "--trace", trace, "--record-routing", routing) as daemon:
            resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            daemon.moectl("generate", "--prompt", LONG_PROMPT, "--max-new-tokens", 200, "--ignore-eos")
            self.assertEqual(daemon.stop(), 1, daemon.log())
            self.assertRegex(daemon.log(), r"moed: --trace: cannot write")
            for name in ("--learned-state", "--residency", "--record-routing"):
                self.assertIn(name, daemon.log())
        self.assertEqual([learned.read_bytes(), residency.read_bytes()], before)
        self.assertEqual(sorted(path.name for path in folder.iterdir() if "partial" in path.name), [])
