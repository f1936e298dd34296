"""bench/compare's journal, whatever it holds, and the runner that goes on from it."""

import json
import math
import pathlib
import random
import tempfile
import unittest
from typing import Any

from bench.compare import CompareError
from bench.compare.journal import Figures, Journal, Key, Record
from bench.compare.runner import Runner, Unit
from tools.server_process import ServerError

RUN = {"store": "a.moed", "cells": [1, 2]}
FIRST = b'{"run":{"store":"a.moed","cells":[1,2]}}\n'
GOOD = (
    b'{"kind":"speed","cell":"25 %","contender":"auto","turn":1,"figures":{"rate":2.5,"n":3},"facts":{"at":"now"}}\n'
    b'{"kind":"speed","cell":"25 %","contender":"fate","turn":0,"figures":{},"not_run":"why"}\n'
)
HOSTILE: list[Any] = [None, True, -1, 1e300, 1.5, "", "x" * 1000, [], {}, [[]], {"a": {}}, 10**400]


class InFolder(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, path: str, text: str) -> str:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return str(file)


class JournalTest(InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.path = str(self.folder / "j.jsonl")

    def opened(self, contents: bytes) -> Journal:
        pathlib.Path(self.path).write_bytes(contents)
        return Journal(self.path, RUN)

    def assert_refused_or_sane(self, contents: bytes) -> None:
        try:
            journal = self.opened(contents)
        except CompareError as error:
            self.assertIn(self.path, str(error))
            return
        records = [record for kind in {key.kind for key in journal._records} for record in journal.records(kind)]
        for record in records:
            self.assertGreaterEqual(record.key.turn, 0)
            self.assertTrue(all(math.isfinite(value) for value in record.figures.values()))
        journal.add(Record(Key("another", "1 %", "auto", 9), {"kl": 0.5}))
        again = Journal(self.path, RUN)
        self.assertEqual(len(again._records), len(records) + 1)

    def test_it_goes_on_where_it_was(self) -> None:
        journal = Journal(self.path, RUN)
        journal.add(Record(Key("speed", "25 %", "auto", 0), {"rate": 2.5, "none": math.nan, "endless": math.inf}, {"at": "now"}))
        journal.add(Record(Key("speed", "25 %", "edgemoe", 0), not_run='needs "widths"'))
        with open(self.path, "a") as file:
            file.write('{"kind":"speed","cel')  # killed while writing
        journal = Journal(self.path, RUN)
        self.assertEqual(
            journal.records("speed", contender="auto"), [Record(Key("speed", "25 %", "auto", 0), {"rate": 2.5}, {"at": "now"})]
        )
        found = journal.find(Key("speed", "25 %", "edgemoe", 0))
        self.assertEqual(found and found.not_run, 'needs "widths"')
        self.assertIsNone(journal.find(Key("speed", "25 %", "auto", 1)))
        journal.add(Record(Key("speed", "25 %", "auto", 1)))
        self.assertEqual(len(Journal(self.path, RUN).records("speed")), 3, "what was cut off is gone, what follows is whole")
        self.assertEqual(Journal(self.path, None).run, RUN, "whoever only reads need not know the run")

    def test_another_run_and_what_is_no_journal_are_refused(self) -> None:
        for contents, run, why in (
            (FIRST, {**RUN, "store": "b"}, 'line 1: it belongs to another run: store is "a.moed" there and "b" here; delete it'),
            (FIRST, {**RUN, "cells": []}, "cells differ"),
            (FIRST, {"store": "a.moed"}, "cells differ"),
            (b"Once upon a time\n", RUN, "line 1"),
            (b"precious", RUN, "is no journal"),
            (FIRST + GOOD + b"{}\n", RUN, "line 4"),
            (FIRST + b"[" * 100_000 + b"\n", RUN, "line 2"),
        ):
            pathlib.Path(self.path).write_bytes(contents)
            with self.assertRaisesRegex(CompareError, why):
                Journal(self.path, run)
            self.assertEqual(pathlib.Path(self.path).read_bytes(), contents, "it stays as it is")
        with self.assertRaises(CompareError):
            Journal(str(self.folder / "no" / "such" / "folder.jsonl"), RUN)

    def test_truncated_it_keeps_its_whole_lines(self) -> None:
        good = json.dumps({"run": RUN}).encode() + b"\n" + GOOD
        for end in range(len(good)):
            lines = good[:end].count(b"\n")
            self.assertEqual(len(self.opened(good[:end])._records), max(0, lines - 1), end)
            self.assert_refused_or_sane(good[:end])

    def test_flipped_and_garbled(self) -> None:
        good, chance = FIRST + GOOD, random.Random(1)
        self.assertEqual(len(self.opened(good)._records), 2)
        for at in range(len(good)):
            damaged = bytearray(good)
            damaged[at] ^= 1 << chance.randrange(8)
            self.assert_refused_or_sane(bytes(damaged))
            begin = chance.randrange(len(good))
            self.assert_refused_or_sane(
                good[:begin] + chance.randbytes(chance.randrange(1, 9)) + good[begin + chance.randrange(9) :]
            )

    def test_hostile_values(self) -> None:
        for line in GOOD.splitlines():
            for name in ("kind", "cell", "contender", "turn", "figures", "facts", "not_run", "unknown"):
                for value in HOSTILE:
                    self.assert_refused_or_sane(FIRST + json.dumps({**json.loads(line), name: value}).encode() + b"\n")
                    figures = json.dumps({**json.loads(line), "figures": {"rate": value}}).encode()
                    self.assert_refused_or_sane(FIRST + figures + b"\n")
        for number in (b"NaN", b"Infinity", b"1e999"):
            with self.assertRaisesRegex(CompareError, "line 2"):
                self.opened(FIRST + GOOD.replace(b"2.5", number))


class RunnerTest(InFolder):
    def test_what_is_there_is_not_measured_again(self) -> None:
        journal, said, measured = Journal(str(self.folder / "j"), RUN), list[str](), list[str]()

        def unit(name: str, failed: str = "", known: str = "") -> Unit:
            def measure() -> Figures:
                measured.append(name)
                if failed:
                    raise ServerError(failed)
                return {"rate": 3}

            return Unit(Key("speed", "25 %", name), measure, 5, lambda: known)

        units = [unit("auto"), unit("hobbit", failed="no room"), unit("fate", known="no plan")]
        for _ in range(2):
            Runner(journal, said.append, lambda record: f"{record.figures['rate']:.0f}/s").run(units)
        self.assertEqual(measured, ["auto", "hobbit"])
        self.assertEqual([record.not_run for record in journal.records("speed")], ["", "no room", "no plan"])
        self.assertIn("[1 of 3, about 0:00:00 left] 25 %, auto, speed 1: 3/s", said)
        self.assertEqual(said[0], "3 measurements, 3 of them left: at most 0:00:10")
        self.assertEqual(said[-1], "3 measurements, 0 of them left: at most 0:00:00")


if __name__ == "__main__":
    unittest.main()
