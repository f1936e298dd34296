"""`bench/compare systems` on the demo model through the real daemon: a tiny run, its tables, and the same command again."""

import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
from typing import Any, ClassVar

from tests.real_programs import CALL_SECONDS, RealProgramsTest, main
from tools.daemon import ROOT, pack_demo


def write_trace(folder: pathlib.Path) -> None:
    """Random routing of the demo model's shape, in two categories."""
    tokens, layers, top_k, experts = 140, 8, 4, 32
    folder.mkdir()
    (folder / "shape.json").write_text(json.dumps({"layers": list(range(layers)), "top_k": top_k, "experts": experts}))
    chosen = random.Random(1)
    routed = (chosen.sample(range(experts), top_k) for _ in range(2 * tokens * layers))
    (folder / "experts.u8").write_bytes(b"".join(map(bytes, routed)))
    (folder / "probs.u8").write_bytes(b"\x64\x50\x32\x10" * (2 * tokens * layers))
    ids = [token % 50 for token in range(tokens)]
    lines = [{"first": at * tokens, "n": tokens, "category": name, "token_ids": ids} for at, name in enumerate("ab")]
    (folder / "index.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


class SystemsTest(RealProgramsTest):
    store: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.store = pack_demo(cls.binaries, cls.folder, "q4", "q4")

    def systems(self, journal: str, *flags: object) -> subprocess.CompletedProcess[str]:
        where = [
            "--store",
            self.store,
            "--bin",
            self.binaries,
            "--cache",
            self.folder / "cache",
            "--journal",
            self.folder / journal,
        ]
        command = [sys.executable, ROOT / "bench" / "compare", "systems", *where, *flags]
        return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=5 * CALL_SECONDS)

    def measured(self, journal: str, *flags: object) -> dict[str, Any]:
        run = self.systems(journal, *flags, "--json", self.folder / "out.json", "--markdown", self.folder / "out.md")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual((self.folder / "out.md").read_text(), run.stdout)
        found: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return found

    def assert_refused(self, reason: str, run: subprocess.CompletedProcess[str]) -> None:
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertRegex(run.stderr, reason)

    def test_it_measures_reports_and_goes_on(self) -> None:
        presets = "load-on-demand-lru,load-on-demand,hobbit,auto+learned,auto@bounded:0.5"
        flags = ["--quick", "--turns", 1, "--seconds", 0.5, "--quality-tokens", 32, "--learn-seconds", 0.5]
        flags += ["--choices", 4, "--presets", presets]
        found = self.measured("j.jsonl", *flags)
        self.assertEqual(len(found["cells"]), 10)
        for cell in found["cells"]:
            name = cell["contender"]
            if name == "hobbit":
                self.assertIn("moed-pack", cell["not_run"], "one precision is not enough")
                continue
            self.assertIn("median", cell, cell)
            median, exact = cell["median"], name != "auto@bounded:0.5"
            for figure in ("decode_tokens_per_second", "prefill_tokens_per_second", "peak_resident_bytes"):
                self.assertGreater(median[figure], 0, name)
            self.assertEqual(median["exact"], exact)
            if name == "load-on-demand-lru":
                self.assertAlmostEqual(median["cache_share"], 0.25, delta=0.03)
                self.assertGreater(median["decode_hit_ratio"], 0)
                self.assertGreater(median["bytes_per_token"], 0)
            quality = cell["quality"]
            if exact:
                self.assertEqual(quality, "exact", "what nobody measured is no figure")
                continue
            self.assertEqual((quality["scored_tokens"], quality["prompt_scored_tokens"]), (31, 31))
            self.assertEqual(quality["choices_asked"], 4)
            self.assertGreater(quality["perplexity"], 1)
            self.assertGreater(quality["prompt_perplexity_ratio"], 0)
            self.assertGreater(quality["kl"], 0, "half of the gate mass may be lost, and is at a quarter of the cache")
        self.assertIn("- hobbit: not run:", (self.folder / "out.md").read_text())
        self.assertTrue((self.folder / "j.jsonl.learned" / "auto+learned-25.state").stat().st_size)

        journal = (self.folder / "j.jsonl").read_bytes()
        self.assertEqual(self.measured("j.jsonl", *flags), found)
        self.assertEqual((self.folder / "j.jsonl").read_bytes(), journal, "everything had been measured")
        run = self.systems("j.jsonl", *flags, "--moed-flags=--threads=1")
        self.assert_refused('line 1: it belongs to another run: moed_flags is "" there and "--threads=1" here', run)
        rebuilt = self.folder / "moed"
        shutil.copy(self.binaries / "moed", rebuilt)
        with open(rebuilt, "ab") as file:
            file.write(b"another build of the same version")
        self.assert_refused(
            r'belongs to another run: moed is "[0-9a-f]{16}" there and', self.systems("j.jsonl", *flags, "--moed", rebuilt)
        )

    def test_slots_are_the_largest_plan_that_the_cache_holds(self) -> None:
        inspect = [str(self.binaries / "moed-pack"), "inspect", str(self.store), "--json"]
        store = json.loads(subprocess.run(inspect, check=True, capture_output=True, timeout=CALL_SECONDS).stdout)
        plans = self.folder / "plans"
        plans.mkdir()
        for name, slots in (("slots-8.json", 2), ("slots-9.json", 3), ("slots-100.json", 32)):
            plan = {"model_hash": store["model_hash"], "slots": [slots] * 8, "norms": [[1.0] * 32] * 8}
            (plans / name).write_text(json.dumps(plan))
        flags = ["--plans", plans, "--presets", "swapmoe", "--quick", "--turns", 1, "--seconds", 0.5, "--quality-tokens", 32]
        run = self.systems("slots.jsonl", *flags)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr, r"slots at 25 %, native: \S+/plans/slots-9.json, 25 of \d+ records")
        self.assertRegex(run.stderr, r'"moed-plan slots STORE TEXT --budget \d+ --out \S+/plans/slots-25.json --force"')
        self.assertRegex(run.stdout, r"\| swapmoe \| \d", "it ran")
        (plans / "slots-9.json").write_text(json.dumps({**plan, "slots": [3] * 8, "norms": [[2.0] * 32] * 8}))
        self.assert_refused("line 1: it belongs to another run: plans differ", self.systems("slots.jsonl", *flags))

    def test_recorded_routing_is_played_on_a_budget(self) -> None:
        write_trace(self.folder / "trace")
        flags = ["--recorded-routing", self.folder / "trace", "--memory-budget", "24MiB", "--seconds", 1, "--turns", 1]
        presets = ["--presets", "load-on-demand-lru,auto+learned,swapmoe-equal", "--learn-seconds", 0.5]
        found = self.measured("recorded.jsonl", *flags, *presets)
        self.assertEqual(len(found["cells"]), 3)
        for cell in found["cells"]:
            if cell["contender"] == "swapmoe-equal":
                self.assertIn("router mask swapmoe asks for all logits", cell["not_run"])
                continue
            self.assertIn("median", cell, cell)
            median = cell["median"]
            for figure in ("decode_tokens_per_second", "disk_bytes_per_second", "bound_share"):
                self.assertGreater(median[figure], 0)
            if cell["contender"] == "load-on-demand-lru":
                self.assertLessEqual(median["decode_hit_ratio"], median["belady_hit_ratio"] + 0.02)
            self.assertNotIn("prefill_tokens_per_second", median, "a prompt of one token")
            self.assertEqual(cell["quality"], "exact")
        self.assertIn("Belady's hits", (self.folder / "out.md").read_text())
        learned = json.loads((self.folder / "recorded.jsonl").read_text().splitlines()[1])
        self.assertEqual(learned["figures"]["learned_tokens"], 50, "100 for each second, of the other category")

    def test_wrong_use_is_named(self) -> None:
        for reason, *flags in (
            ("--memory-budget is one cell on the native disk", "--memory-budget", "24MiB", "--quick"),
            ('--memory-budget "much" is no number of bytes', "--memory-budget", "much"),
            ("/nowhere/trace: no such directory", "--recorded-routing", "/nowhere/trace"),
            ('unknown preset "nobody"', "--presets", "nobody"),
            ("/nowhere/moed: no program to run", "--moed", "/nowhere/moed"),
            ("known are 10, 25, 50, 75, 100", "--shares", "33"),
            ("known are native, 550, 90", "--disks", "tape"),
            ('no contender knows the option "widths"', "--presets", "auto", "--options", "widths=FILE"),
            ("/nowhere/text: cannot be read", "--prompts", "/nowhere/text", "--shares", "25"),
            ("/nowhere/store: there is no such store", "--store", "/nowhere/store"),
        ):
            self.assert_refused(reason, self.systems("wrong.jsonl", *flags))
        self.assertFalse((self.folder / "wrong.jsonl").exists())

    def test_the_list_names_what_only_the_daemon_knows(self) -> None:
        lines = self.systems("list.jsonl", "--list", "--quick").stdout.splitlines()
        presets = re.findall(r"^  ([\w-]+)", self.run_program("moed", "--list").stdout.split("\n\n")[0], re.M)
        self.assertIn("auto", presets)
        for contender in [*presets, "auto+learned", "load-on-demand-lru+policy=lfu", "fate+predictor=none@exact"]:
            self.assertIn(f"25 %, native: {contender}", lines)


if __name__ == "__main__":
    main()
