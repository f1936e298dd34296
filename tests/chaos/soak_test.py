"""The soak for seconds, in two parts; traces that it reads, and files that are none."""

import json
import subprocess
import sys

from tests.chaos import arrivals
from tests.real_programs import RealProgramsTest, main
from tools.daemon import ROOT

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.9799600,3180,8\n"
MOONCAKE = (
    '{"timestamp": 0, "input_length": 4808, "output_length": 10}\n{"timestamp": 2000, "input_length": 3180, "output_length": 8}\n'
)


class SoakTest(RealProgramsTest):
    def test_two_parts_are_one(self) -> None:
        state = self.folder / "soak"
        for part in (1, 2):
            command = [sys.executable, "-m", "tests.chaos.soak", "--bin", self.binaries, "--rate", 30, "--state", state]
            run = subprocess.run([*map(str, command), "--hours", str(part / 2400)], cwd=ROOT, capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))
            kept = json.loads((state / "state.json").read_text())
            self.assertEqual((kept["parts"], kept["faults"]), (part, []))
            self.assertGreaterEqual(kept["elapsed"], part * 1.5)
        rows = [json.loads(line) for line in (state / "journal.jsonl").read_text().splitlines()]
        self.assertEqual([row["part"] for row in rows if row["calm"]], [1, 1, 2, 2])
        self.assertGreater(kept["arrivals"], sum(kept["outcomes"].values()) - 1)

    def test_traces(self) -> None:
        for name, text in (("azure.csv", AZURE), ("mooncake.jsonl", MOONCAKE)):
            (self.folder / name).write_text(text)
            self.assertEqual(arrivals.read_trace(self.folder / name), [arrivals.Arrival(2, 3180, 8)])
        coming = arrivals.endless(arrivals.read_trace(self.folder / "azure.csv"), rate=4, first=7)
        self.assertEqual([next(coming).gap for _ in range(3)], [0.25] * 3)
        for number, text in enumerate(("", "{}", AZURE.replace("4808", "x"), AZURE.replace(":05", ":01"), "TIMESTAMP\n1\n")):
            (self.folder / "none").write_text(text)
            with self.subTest(number), self.assertRaises(arrivals.TraceError):
                arrivals.read_trace(self.folder / "none")


if __name__ == "__main__":
    main()
