"""bench/compare without a daemon: what is compared, tables."""

import json
import os
import unittest
from types import SimpleNamespace
from typing import Any

from bench.compare import CompareError
from bench.compare.energy import EnergyMeter
from bench.compare.journal import Journal, Key, Record
from bench.compare.moed import BESIDE_BUDGET_BYTES, reason
from bench.compare.server import Answer, joint_rate
from bench.compare.spread import Spread, ratio
from bench.compare.systems import cells, report
from bench.compare.systems.ablations import ABLATIONS
from bench.compare.systems.bench import Kind, hash_of, split_for_learning
from bench.compare.systems.campaign import Plan
from bench.compare.systems.contenders import (
    Contender,
    Known,
    check_options,
    options_of,
    parse_contender,
    parse_contenders,
    parse_options,
)
from bench.compare.systems.plans import find_plans, find_slots, largest_that_fits
from bench.compare.systems.turn import bound_share
from tests.bench.compare_journal_test import RUN, InFolder

LISTING = """presets (--preset)
  auto                 exact unless a request allows; a loss; policy learned, predictor learned, mask none, rule priced (ours)
  edgemoe              EdgeMoE; policy edgemoe, predictor activation-path, mask none, rule widths (EdgeMoE, III-B and III-C)
  hobbit               HOBBIT; policy hobbit, predictor stacked-gate, mask none, rule hobbit (HOBBIT)
  fate                 Fate; policy fate, predictor fate, mask none, rule fate (Fate)
  swapmoe-equal        equal slots; policy swapmoe, predictor none, mask swapmoe, rule exact, swap-slots=equal (SwapMoE)
  load-on-demand       on demand; policy lru, predictor none, mask none, rule exact (Fate's baseline)
  load-on-demand-lru   on demand; policy lru, predictor none, mask none, rule exact (ours)

policies (--policy)
  lru                  evicts the least recently used expert
  lfu                  evicts the least often used one
  edgemoe              evicts
      paths                      file                 file of activation paths
  hobbit               evicts
      hobbit-plan                file                 file of moed-plan hobbit
  fate                 evicts
  swapmoe              evicts
      swap-slots=planned         planned or equal     slots
      slots                      file                 slots
  learned              evicts

predictors (--predictor)
  none                 guesses nothing
  stacked-gate         this layer's gate input
      stacked-gate-layers=3      1 to 64 layers       p: layers ahead
  activation-path      experts that followed
      paths                      file                 file of activation paths
  fate                 the same
  learned              next layer's gate

fidelity rules (--fidelity-rule)
  exact                every expert
  hobbit               at a miss
      hobbit-t1=0.6              0 to 1               gate mass
  widths               every expert at its own precision
      widths                     file                 file with the precision
  fate                 low
  priced               ours

router masks (of presets)
  none                 all
  swapmoe              residents
      slots                      file                 slots

read backends (--io-backend)
  io_uring
"""
KNOWN = Known.of(LISTING)


def contender(name: str) -> Contender:
    return parse_contender(KNOWN, name)


class ContendersTest(InFolder):
    def test_all_is_every_preset_and_auto_in_several_ways(self) -> None:
        names = [one.name for one in parse_contenders(KNOWN, "all")]
        self.assertEqual(
            names[:7],
            ["auto", "auto+learned", "auto@bounded:0.1", "auto@bounded:0.2", "auto@bounded:0.4", "auto@bounded:0.8", "edgemoe"],
        )
        self.assertLess({*KNOWN.presets, "load-on-demand-lru+policy=lfu", "fate+predictor=none@exact"}, set(names))
        self.assertEqual(len(parse_contenders(KNOWN, "auto@exact,auto@fast,auto@bounded:0.25,hobbit")), 4)

    def test_names_say_what_is_replaced(self) -> None:
        hobbit = contender("hobbit+stacked-gate-layers=1+policy=lru@bounded:0.5")
        self.assertEqual((hobbit.parts, hobbit.options), ((("policy", "lru"),), (("stacked-gate-layers", "1"),)))
        self.assertEqual(hobbit.name, "hobbit+policy=lru+stacked-gate-layers=1@bounded:0.5")
        self.assertEqual(hobbit.asks(), ("BOUNDED", 0.5))
        self.assertFalse(hobbit.plain)
        self.assertEqual(
            hobbit.flags(hobbit.options), ["--preset", "hobbit", "--policy", "lru", "--preset-options", "stacked-gate-layers=1"]
        )
        learned = contender("auto+learned")
        self.assertTrue(learned.learned and learned.plain)

    def test_errors_say_what_is_allowed(self) -> None:
        for text, allowed in (
            ("auto,nobody", '"nobody"; known are: all, ablations, auto, edgemoe'),
            ("auto,auto", "twice"),
            ("auto@loose", "expected exact, fast-matmul, bounded:X"),
            ("auto@bounded:2", "X from 0 to 1"),
            ("auto@", "expected exact"),
            ("auto+policy=best", 'unknown policy "best"; known are: lru'),
            ("auto+fill-cache=perhaps", "known are: on, off"),
            ("auto+policy", "NAME one of policy, predictor, fidelity-rule, fill-cache or"),
        ):
            with self.assertRaises(CompareError) as raised:
                parse_contenders(KNOWN, text)
            self.assertIn(allowed, str(raised.exception))

    def test_options_go_to_who_knows_them(self) -> None:
        for wrong, why in (("edgemoe", "expected .PRESET:.NAME=VALUE"), ("nobody:a=b", "unknown preset")):
            with self.assertRaisesRegex(CompareError, why):
                parse_options(KNOWN, [wrong])
        given = parse_options(KNOWN, ["widths=w", "edgemoe:paths=p-{share}", "hobbit-t1=0.5,swap-slots=planned"])

        def of(name: str) -> list[tuple[str, str]]:
            return options_of(KNOWN, contender(name), given, 25)

        self.assertEqual(of("edgemoe"), [("widths", "w"), ("paths", "p-25")])
        self.assertEqual(of("edgemoe+fidelity-rule=exact"), [("paths", "p-25")])
        self.assertEqual(of("load-on-demand+fidelity-rule=widths"), [("widths", "w")])
        self.assertEqual(of("load-on-demand+predictor=activation-path"), [], "paths are for edgemoe alone")
        self.assertEqual(of("hobbit+hobbit-t1=0.25"), [("hobbit-t1", "0.25")], "its own wins")
        self.assertEqual(of("swapmoe-equal"), [], "the preset says it itself")
        check_options(KNOWN, parse_contenders(KNOWN, "edgemoe,hobbit"), given[:3])
        with self.assertRaisesRegex(CompareError, '"hobbit-t1"'):
            check_options(KNOWN, parse_contenders(KNOWN, "auto,edgemoe"), given)

    def test_plans_of_a_folder_go_to_who_takes_them(self) -> None:
        for file in ("paths", "hobbit.json"):
            self.write(file, "a plan")
        found, missing = find_plans(str(self.folder), [])
        self.assertEqual(missing, ["widths.json", "fate.json"])
        for name, options in {"edgemoe": ["paths"], "hobbit": ["hobbit-plan"], "swapmoe-equal": [], "auto": []}.items():
            plans = options_of(KNOWN, contender(name), found, 25)
            self.assertEqual([option for option, _ in plans], options)
            self.assertTrue(all(os.path.exists(path) for _, path in plans))
        beside, _ = find_plans(str(self.folder), parse_options(KNOWN, ["edgemoe:paths=mine"]))
        self.assertNotIn("paths", [one.name for one in beside], "what is given counts")
        with self.assertRaisesRegex(CompareError, "moed-plan all STORE TEXT --out"):
            find_plans(str(self.folder / "none"), [])

    def test_the_largest_slots_that_fit_a_cache(self) -> None:
        for name, slots in (("slots-10.json", [3, 4]), ("slots-25.json", [7, 5]), ("slots-all.json", [1])):
            self.write(name, json.dumps({"slots": slots}))
        plans = find_slots(str(self.folder))
        self.assertEqual([plan.records for plan in plans], [8, 13], "with the spare one")
        for records, wanted in ((7, None), (8, 8), (12, 8), (13, 13), (99, 13)):
            plan = largest_that_fits(plans, records)
            self.assertEqual(plan and plan.records, wanted)
        self.assertEqual(find_plans(str(self.folder), [])[0], [], "slots alone are plans, too")
        for wrong in ("", "{}", '{"slots": 3}', "[1, 2]"):
            self.write("slots-25.json", wrong)
            with self.assertRaisesRegex(CompareError, "slots-25.json: no plan of slots"):
                find_slots(str(self.folder))

    def test_every_ablation_names_two_contenders_that_differ(self) -> None:
        for row in ABLATIONS:
            self.assertNotEqual(row.of, row.without)
            for name in (row.of, row.without):
                preset, *changes = name.split("+")
                parts = tuple(tuple(change.split("=")) for change in changes if "=" in change)
                self.assertEqual(Contender(preset, parts, learned="learned" in changes).name, name)  # type: ignore[arg-type]


class CellsTest(unittest.TestCase):
    def test_no_cell_takes_more_than_a_minute_a_contender(self) -> None:
        for cell in cells.ALL + cells.QUICK:
            protocol = cell.protocol
            self.assertLessEqual(protocol.turns * protocol.seconds, 60, cell.name)
            self.assertLessEqual(protocol.prompt_tokens + protocol.skipped_tokens + 1 + protocol.counted_tokens, 256, cell.name)

    def test_choice_of_cells(self) -> None:
        grid = cells.choose(shares=["10", "25"], disks=["native", "90"], seconds=5, turns=2)
        self.assertEqual([cell.name for cell in grid], ["10 %, native", "25 %, native", "25 %, 90 MB/s"])
        self.assertEqual((grid[0].protocol.seconds, grid[0].protocol.turns), (5, 2))
        self.assertEqual((grid[2].protocol.seconds, grid[2].protocol.turns), (30, 2), "in proportion")
        counted = [cell.protocol.requests * cell.protocol.counted_tokens for cell in cells.choose(counted_tokens=255)]
        self.assertEqual(counted, [256] * 5 + [255] * 2, "of a turn, in answers of the same length")
        self.assertEqual(cells.choose(), cells.ALL)
        budget = cells.choose(budget=cells.parse_bytes("--memory-budget", "1.5GB"), recorded=True)
        self.assertEqual([(cell.name, cell.protocol.prompt_tokens) for cell in budget], [("1500 MB, native", 1)])
        self.assertEqual(cells.parse_bytes("--memory-budget", "8 MiB"), 8 << 20)
        for wrong, why in (
            ({"shares": ["33"]}, "known are 10, 25, 50, 75, 100"),
            ({"disks": ["tape"]}, "known are native, 550, 90"),
        ):
            with self.assertRaisesRegex(CompareError, why):
                cells.choose(**wrong)  # type: ignore[arg-type]


class PlanTest(InFolder):
    def test_another_contender_begins_each_turn(self) -> None:
        cell = cells.Cell(25, "native", cells.QUICK_NATIVE)
        given = SimpleNamespace(questions=[]), SimpleNamespace(learn_seconds=1, recorded_routing="")
        plan = Plan(*given, Journal(str(self.folder / "j.jsonl"), RUN))  # type: ignore[arg-type]
        names = ["auto", "hobbit", "fate"]
        keys = [unit.key for unit in plan.units([cell], [contender(name) for name in names])]
        turns = [[key.contender for key in keys if key[::3] == ("speed", turn)] for turn in range(cell.protocol.turns)]
        self.assertEqual(turns[:2], [names, ["hobbit", "fate", "auto"]])
        self.assertTrue(all(sorted(turn) == sorted(names) for turn in turns))


class PromptsTest(unittest.TestCase):
    def test_learning_and_answering_use_other_halves(self) -> None:
        learning, prompts = split_for_learning([Kind("a", [1, 2, 3, 4, 5]), Kind("b", [6, 7])])
        self.assertEqual([kind.ids for kind in learning], [[1, 2], [6]])
        self.assertEqual([kind.ids for kind in prompts], [[3, 4, 5], [7]])

    def test_pieces_differ_and_are_whole(self) -> None:
        kind = Kind("text", list(range(10000)))
        self.assertEqual(kind.prompt(64, 0), list(range(64)))
        self.assertNotEqual(kind.prompt(64, 0), kind.prompt(64, 1))
        self.assertEqual(Kind("short", [4, 5, 6]).prompt(64, 7), [4, 5, 6])

    def test_texts_are_told_apart(self) -> None:
        texts = [Kind("a", [1, 2, 3]), Kind("b", [4])]
        others = (
            [Kind("a", [1, 2, 9]), Kind("b", [4])],
            [Kind("a", [1, 2, 3, 4]), Kind("b", [])],
            [Kind("a", [1, 2, 3]), Kind("c", [4])],
        )
        self.assertEqual(hash_of(texts), hash_of(list(texts)))
        self.assertEqual(len({hash_of(texts), *map(hash_of, others)}), 4)


class EnergyTest(InFolder):
    def test_packages_alone_are_added_and_counters_wrap(self) -> None:
        self.assertEqual(EnergyMeter(str(self.folder / "nowhere")).joules(), 0)
        for zone, energy in (("intel-rapl:0", 1_000_000), ("intel-rapl:1", 9_000_000), ("intel-rapl:0:0", 5)):
            self.write(f"{zone}/max_energy_range_uj", "10000000\n")
            self.write(f"{zone}/energy_uj", str(energy))
        meter = EnergyMeter(str(self.folder))
        self.assertEqual(meter.joules(), 0)
        for zone, energy in (("intel-rapl:0", 3_000_000), ("intel-rapl:1", 500_000), ("intel-rapl:0:0", 4_000_000)):
            self.write(f"{zone}/energy_uj", str(energy))
        self.assertEqual(meter.joules(), 2 + 1.5)
        self.assertEqual(meter.joules(), 2 + 1.5)


class AnswerTest(unittest.TestCase):
    def test_rate_leaves_out_what_was_skipped(self) -> None:
        answer = Answer(8, started=0.0, times=[5.0, 6.0, 6.5, 7.0, 7.5])
        self.assertEqual(answer.first_token_seconds, 5.0)
        self.assertEqual(answer.rate(1), 2.0)
        self.assertIsNone(answer.rate(4))

    def test_joint_rate_covers_the_time_in_which_all_were_answered(self) -> None:
        self.assertEqual(joint_rate([Answer(1, 0.0, [1, 2, 3, 4, 5]), Answer(1, 0.0, [3, 4, 5, 6, 7])]), 2.0)
        self.assertIsNone(joint_rate([Answer(1, 0.0, [1, 2]), Answer(1, 0.0, [3, 4])]))

    def test_the_reason_is_what_the_daemon_said_last(self) -> None:
        log = "2026-11-26T19:38:49.149+00:00 info moed 0.1.0\nmoed: first\n2026-11-26T19:38:50.000+00:00 info more"
        log += "\nmoed: the store\n  lacks it"
        self.assertEqual(reason(log), "the store lacks it")
        self.assertEqual(reason("killed"), "")

    def test_spreads_and_ratios(self) -> None:
        self.assertIsNone(Spread.of([None, None]))
        self.assertEqual(Spread.of([4.0, None, 2.0]), Spread(3, 2, 4, 2))
        self.assertEqual(ratio(Spread(12, 8, 16, 3), Spread(4, 2, 8, 3)), (3, 1, 8))
        self.assertEqual(ratio(Spread(2, 1, 4, 3), Spread(6, 4, 8, 3), smaller_is_better=True), (3, 1, 8))

    def test_the_bound_is_what_is_slower(self) -> None:
        figures = {"disk_bytes_per_second": 100.0, "bytes_per_token": 8.0, "decode_tokens_per_second": 10.0, "stall_share": 0.5}
        self.assertEqual(bound_share(figures), 0.8)
        self.assertEqual(bound_share(figures | {"read_bytes_per_second": 160.0}), 0.5)


class ReportTest(InFolder):
    CELL = cells.Cell(25, "native", cells.QUICK_NATIVE)

    def setUp(self) -> None:
        super().setUp()
        self.journal = Journal(str(self.folder / "j.jsonl"), RUN)
        self.contenders = [contender(name) for name in ("hobbit", "load-on-demand-lru", "edgemoe", "auto", "auto@bounded:0.1")]
        self.parts = report.Parts([self.CELL], self.contenders, self.journal, {25: 100 << 20})
        self.add("load-on-demand-lru", 2, 4, exact=1)
        self.add("hobbit", 3, 8, exact=0, gate_mass_lost=0.2)
        self.add("auto", 3, 6, exact=1, gate_mass_lost=0)
        self.add("auto@bounded:0.1", 6, 12, exact=0, gate_mass_lost=0.1)
        self.journal.add(Record(Key("speed", self.CELL.name, "edgemoe"), not_run="needs widths"))
        self.journal.add(Record(Key("quality", self.CELL.name, "hobbit"), {"perplexity_ratio": 1.0625, "kl": 0.0625}))

    def add(self, name: str, *rates: float, **figures: float) -> None:
        for turn, rate in enumerate(rates):
            self.journal.add(Record(Key("speed", self.CELL.name, name, turn), {report.RATE: rate, **figures}))

    def targets(self) -> dict[tuple[str, float], dict[str, Any]]:
        return {(row["what"], row["reach"]): row for row in report.targets(self.parts)}

    def test_ratios_are_of_one_turn(self) -> None:
        found = self.journal.ratio(self.CELL.name, "hobbit", "load-on-demand-lru", report.RATE)
        self.assertEqual(found, Spread(1.75, 1.5, 2.0, 2))
        self.assertIsNone(self.journal.ratio(self.CELL.name, "hobbit", "edgemoe", report.RATE))

    def test_targets_pick_their_rivals(self) -> None:
        self.assertTrue(self.targets()["hobbit / load-on-demand-lru", 1.5]["met"])
        exact = self.targets()["auto / the best exact rival (load-on-demand-lru)", 1.2]
        self.assertEqual(exact["median"], 1.5)
        # Whoever is exact, whatever was replaced in him, but not auto's own parts.
        for name, rate in (("hobbit@exact", 4), ("hobbit+predictor=none@exact", 5), ("auto+policy=lru", 8)):
            self.contenders.append(contender(name))
            self.add(name, rate, rate, exact=1)
        exact = self.targets()["auto / the best exact rival (hobbit+predictor=none@exact)", 1.2]
        self.assertAlmostEqual(exact["median"], (0.6 + 1.2) / 2)
        bounded = self.targets()["auto within hobbit's gate mass (auto@bounded:0.1) / hobbit", 1.1]
        self.assertEqual(bounded["median"], (2 + 1.5) / 2)
        self.contenders.remove(contender("load-on-demand-lru"))
        self.assertFalse([what for what, _ in self.targets() if "best exact" in what], "of some the best says nothing")

    def test_ablations_are_ratios_of_one_turn(self) -> None:
        self.assertEqual(report.ablation_tables(self.parts), "", "nobody has his counterpart")
        self.contenders.append(contender("hobbit+fidelity-rule=exact"))
        self.add("hobbit+fidelity-rule=exact", 2, 4, exact=1)
        row = "| hobbit | hobbit+fidelity-rule=exact | 5.5 | 3.0 | 1.75 (1.50 to 2.00) |  | 1.062 | exact |"
        self.assertIn(row, report.ablation_tables(self.parts))
        self.assertEqual(report.as_json(self.parts)["ablations"][0]["median"], 1.75)

    def test_tables_name_every_contender(self) -> None:
        text = report.markdown(self.parts)
        self.assertIn("| hobbit | 5.50 (3.00 to 8.00) |", text)
        self.assertIn("| 1.062 |", text)
        self.assertIn("- edgemoe: not run: needs widths", text)
        self.assertNotIn("J a token", text, "nobody has that figure")
        data = report.as_json(self.parts)
        self.assertEqual(len(data["cells"]), len(self.contenders))
        self.assertEqual(data["budgets"][0]["process_limit_bytes"], (100 << 20) + BESIDE_BUDGET_BYTES)
        self.assertEqual(data["cells"][2]["not_run"], "needs widths")

    def test_what_nobody_measured_is_no_figure(self) -> None:
        quality = {cell["contender"]: cell.get("quality") for cell in report.as_json(self.parts)["cells"]}
        self.assertEqual(quality.pop("hobbit"), {"perplexity_ratio": 1.0625, "kl": 0.0625})
        exact = {"auto": "exact", "load-on-demand-lru": "exact"}
        self.assertEqual(quality, exact | {"edgemoe": None, "auto@bounded:0.1": None})
        text = report.markdown(self.parts)
        self.assertIn("| auto | 4.50 (3.00 to 6.00) | 0.0 % | exact | exact | exact |", text)
        self.assertIn("| auto@bounded:0.1 | 9.00 (6.00 to 12.0) | 10 % |  |  |  |", text)


if __name__ == "__main__":
    unittest.main()
