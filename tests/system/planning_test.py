"""`moed plan` and `moed doctor` as their users call them: what they print, what they refuse, and that nothing is left behind.
What becomes of output that cannot be written."""

import itertools
import json
import pathlib
import re
import subprocess
from typing import Any, ClassVar

from tests.real_programs import RealProgramsTest, main
from tools.daemon import DEMO_CHECKPOINT, ROOT, pack, pack_demo

BRIEF = ("--seconds", 0.05)
MIB = 1 << 20


class Output(RealProgramsTest):
    def test_what_standard_output_does_not_take_is_a_failure(self) -> None:
        for program, *arguments in (
            ("moed", "doctor", "--json", "--path", self.folder, *BRIEF),
            ("moed", "--list"),
            ("moed-http", "--list-parameters"),
            ("moed-pack", "--list-families"),
            ("moed-plan", "--help"),
        ):
            command = [str(word) for word in (self.binaries / program, *arguments)]
            with open("/dev/full", "w") as full:
                run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual(run.returncode, 1, command)
            self.assertIn(f"{program}: standard output is not whole: ", run.stderr)


class Doctor(RealProgramsTest):
    def test_json_has_every_check_that_is_documented_and_leaves_nothing(self) -> None:
        folder = self.folder / "looked-at"
        folder.mkdir()
        run = self.run_program("moed", "doctor", "--json", "--path", folder, *BRIEF)
        self.assertEqual(run.returncode, 0, run.stderr)
        report = json.loads(run.stdout)
        self.assertEqual(report["path"], str(folder.resolve()))
        self.assertTrue(report["can_serve"])
        documented = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "doctor.md").read_text(), flags=re.MULTILINE)
        self.assertEqual([check["name"] for check in report["checks"]], documented)
        checks = {check["name"]: check for check in report["checks"]}
        for check in checks.values():
            self.assertIn(check["state"], ("ok", "slower", "unavailable"))
            self.assertTrue(check["found"])
        self.assertGreater(checks["memory_bandwidth"]["values"]["bytes_per_second"], 0)
        self.assertEqual(checks["disk_bandwidth"]["values"]["measured"], "temporary file")
        self.assertEqual(list(folder.iterdir()), [])

    def test_where_nothing_can_be_written_the_disk_is_not_measured(self) -> None:
        run = self.run_program("moed", "doctor", "--path", "/proc", *BRIEF)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stdout, r"disk bandwidth +unavailable +.*/proc")
        self.assertIn("moed can serve here", run.stdout)

    def test_refusals_name_what_was_wrong(self) -> None:
        for arguments, named in (
            (("--path", self.folder / "absent"), "absent"),
            (("--nonsense",), "--nonsense"),
            (("--seconds", "0"), "--seconds"),
            (("stray",), "stray"),
        ):
            run = self.run_program("moed", "doctor", *arguments)
            self.assertEqual(run.returncode, 2, arguments)
            self.assertIn(named, run.stderr)


class Plan(RealProgramsTest):
    store: ClassVar[pathlib.Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.store = pack_demo(cls.binaries, cls.folder, "bf16", "bf16")

    def plan(self, model: pathlib.Path, *flags: object) -> dict[str, Any]:
        run = self.run_program("moed", "plan", model, "--json", *BRIEF, *flags)
        self.assertEqual(run.returncode, 0, run.stderr)
        answer: dict[str, Any] = json.loads(run.stdout)
        return answer

    def test_the_plan_is_the_one_that_the_daemon_starts_by(self) -> None:
        before = sorted(self.folder.iterdir())
        plan = self.plan(self.store, "--memory", "16MiB")
        self.assertEqual(sorted(self.folder.iterdir()), before)
        with self.running("--store", self.store, "--memory-budget", "16MiB") as daemon:
            self.assertEqual({part["part"]: part["bytes"] for part in plan["chosen"]["memory"]}, daemon.memory_parts())
            model = daemon.json("info")["model"]
        self.assertEqual(plan["chosen"]["max_context"], model["max_context"])
        self.assertEqual(plan["model"]["all_expert_bytes"], int(model["all_expert_bytes"]))

    def test_a_devices_memory_is_planned_beside_the_hosts(self) -> None:
        budgets = ("--memory", "16MiB", "--device-budget", "24MiB")
        chosen = self.plan(self.store, *budgets)["chosen"]
        self.assertEqual((chosen["memory_budget_bytes"], chosen["device_budget_bytes"]), (16 * MIB, 24 * MIB))
        for memory, budget in (("memory", 16 * MIB), ("device_memory", 24 * MIB)):
            self.assertLessEqual(sum(part["bytes"] for part in chosen[memory]), budget)
        self.assertIn("experts", [part["part"] for part in chosen["device_memory"]])
        self.assertGreater(chosen["expert_share"], chosen["device_expert_share"])
        self.assertGreater(chosen["device_expert_share"], 0.1)
        text = self.run_program("moed", "plan", self.store, *budgets).stdout
        self.assertIn("device budget 24.0 MiB", text)
        refused = self.run_program("moed", "plan", self.store, "--memory", "16MiB", "--device-budget", "1MiB")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("device budget", refused.stderr)

    def test_budgets_rise_from_the_smallest_to_the_comfortable_one(self) -> None:
        plan = self.plan(self.store)
        rows = plan["budgets"]
        self.assertEqual((rows[0]["name"], rows[-1]["name"]), ("smallest", "comfortable"))
        self.assertEqual(rows[0]["memory_budget_bytes"], plan["smallest_memory_budget_bytes"])
        self.assertEqual(rows[-1]["memory_budget_bytes"], plan["comfortable_memory_budget_bytes"])
        self.assertEqual(rows[-1]["expert_share"], 1)
        for less, more in itertools.pairwise(rows):
            self.assertLess(less["memory_budget_bytes"], more["memory_budget_bytes"])
            self.assertLessEqual(less["expected"]["tokens_per_second"], more["expected"]["tokens_per_second"])
        for row in rows:
            speeds = [row[curve]["tokens_per_second"] for curve in ("slowest", "expected", "fastest")]
            self.assertEqual(speeds, sorted(speeds))
        text = self.run_program("moed", "plan", self.store, "--memory", "16MiB", *BRIEF).stdout
        for word in ("trunk", "cache", "smallest", "given", "comfortable"):
            self.assertIn(word, text)

    # Experts of three parts, and of two.
    def test_a_checkpoint_is_planned_as_the_store_that_it_becomes(self) -> None:
        for checkpoint in (DEMO_CHECKPOINT, self.binaries.parent / "checkpoints" / "nemotron_h"):
            with self.subTest(checkpoint.name):
                before = self.plan(checkpoint, "--memory", "20MiB", "--expert-formats", "q4")
                store = pack(self.binaries, checkpoint, self.folder / f"{checkpoint.name}.moed", "--expert-formats", "q4")
                after = self.plan(store, "--memory", "20MiB")
                self.assertFalse(before["model"]["packed"])
                for name in ("smallest_memory_budget_bytes", "comfortable_memory_budget_bytes"):
                    self.assertEqual(before[name], after[name])
                self.assertEqual(before["chosen"]["memory"], after["chosen"]["memory"])
                for name in ("token_trunk_bytes", "token_expert_bytes", "all_expert_bytes"):
                    self.assertEqual(before["model"][name], after["model"][name])

    def test_one_byte_below_the_smallest_budget_is_refused_with_it(self) -> None:
        smallest = self.plan(self.store)["smallest_memory_budget_bytes"]
        refused = self.run_program("moed", "plan", self.store, "--memory", smallest - 1)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--memory", refused.stderr)
        self.assertIn(f"{smallest} bytes", refused.stderr)

    def test_refusals_name_what_was_wrong(self) -> None:
        text = self.folder / "text.moed"
        text.write_text("no store\n")
        cut = self.folder / "cut.moed"
        cut.write_bytes(self.store.read_bytes()[: 4 * MIB])
        for code, arguments, named in (
            (2, (self.folder / "absent.moed",), "absent.moed"),
            (2, (text,), "text.moed"),
            (1, (cut,), "cut.moed"),
            (2, (), "MODEL"),
            (2, (self.store, "--memory", "much"), '"much"'),
            (2, (self.store, "--nonsense"), "--nonsense"),
            (2, (self.store, "--expert-formats", "q4"), "--expert-formats"),
            (1, (DEMO_CHECKPOINT, "--expert-formats", "q5"), "q5"),
        ):
            run = self.run_program("moed", "plan", *arguments)
            self.assertEqual(run.returncode, code, (arguments, run.stderr))
            self.assertIn(named, run.stderr)


if __name__ == "__main__":
    main()
