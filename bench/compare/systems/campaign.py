"""One run: every contender in every cell, turn by turn, then what it loses."""

import json
import os
import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

from tools.server_process import ServerError

from .. import Say
from ..journal import Figures, Journal, Key, Record
from ..moed import check_program, fingerprint
from ..runner import Runner, Unit, rotated
from . import report
from .bench import Bench, Kind, Texts, hash_of
from .cells import Cell, choose, parse_bytes
from .contenders import Contender, Given, Known, check_options, parse_contenders, parse_options
from .options import Options
from .plans import SLOTS, find_plans, find_slots, largest_that_fits
from .quality import CHOICE_SECONDS, SCORED_AS, Quality, flags_of
from .recorded import Recorded
from .turn import learn, measure_turn

START_SECONDS = 1  # of a daemon, about
LEAST_USED = 0.95  # of a cache, by a plan of slots: else it is said how a better one is made
QUALITY_SECONDS = sum(seconds for seconds, _ in SCORED_AS.values())


def choose_cells(options: Options) -> list[Cell]:
    budget = parse_bytes("--memory-budget", options.memory_budget) if options.memory_budget else 0
    recorded = bool(options.recorded_routing)
    return choose(
        options.quick, budget, recorded, options.shares, options.disks, options.seconds, options.turns, options.counted_tokens
    )


def read_recorded(options: Options, cells: Sequence[Cell], bench: Bench) -> None:
    moe_bench = check_program(os.path.join(options.bin, "moe-bench"), "--bin")
    bench.recorded = Recorded(options.recorded_routing, moe_bench)
    # Tokens that a recorded sequence needs so that no request plays it again from its begin.
    protocols = [cell.protocol for cell in cells]
    longest = max(max(p.warm_up_tokens, p.skipped_tokens + 1 + p.counted_tokens) for p in protocols)
    measured, learning = bench.recorded.kinds(longest)
    bench.prompts, bench.learning = ([Kind(*kind) for kind in kinds] for kinds in (measured, learning))


def choose_slots(bench: Bench, folder: str, cells: Sequence[Cell], say: Say) -> list[Given]:
    """For every share the folder's largest plan that fits what the preset's cache holds there, in every daemon that is asked."""
    plans, chosen = find_slots(folder), list[Given]()
    for cell in {cell.share: cell.native() for cell in cells}.values():
        records = min(bench.records_of_slots(cell, *more) for more in ((), *map(flags_of, SCORED_AS)))
        plan = largest_that_fits(plans, records)
        if plan:
            chosen.append(Given("", SLOTS, plan.path, cell.share))
        used = plan.records if plan else 0
        say(f"slots at {cell.name}: {plan.path if plan else 'no plan fits'}, {used} of {records} records")
        if used < LEAST_USED * records:
            budget, file = records * bench.model.expert_bytes, os.path.join(folder, f"slots-{cell.share}.json")
            say(f'"moed-plan slots STORE TEXT --budget {budget} --out {file} --force" plans for all of them')
    return chosen


def prepare(options: Options, cells: Sequence[Cell], contenders: Sequence[Contender], known: Known, say: Say) -> Bench:
    given = parse_options(known, options.options)
    check_options(known, contenders, given)
    bench = Bench(options.moed, options.store, shlex.split(options.moed_flags), known, given, options.journal + ".learned")
    if options.recorded_routing:
        read_recorded(options, cells, bench)
    if options.plans:
        found, missing = find_plans(options.plans, given)
        for file in missing:
            say(f"--plans {options.plans} has no {file}: presets that take it do without")
        bench.options += found
    texts = Texts(options.prompts, options.learn_text, options.quality_text, options.quality_tokens, options.choices)
    bench.prepare(cells, texts)
    takes_slots = any(contender.knows(known, SLOTS) for contender in contenders)
    if options.plans and takes_slots and all(one.name != SLOTS for one in given):
        try:
            bench.options += choose_slots(bench, options.plans, cells, say)
        except ServerError as error:
            say(f"--plans {options.plans}: slots are not looked at: {error}")
    return bench


def describe(bench: Bench, options: Options, cells: Sequence[Cell]) -> dict[str, Any]:
    """A journal goes on only where all of this is the same: one program, one store (by the hash over its checksums), the same
    plans, by what is in their files, the same tokens."""
    return {
        "moed": bench.program_hash,
        "store": os.path.basename(options.store),
        "model_hash": bench.model.model_hash,
        "version": bench.version,
        "expert_formats": list(bench.model.expert_formats),
        "moed_flags": options.moed_flags,
        "options": [[one.preset, one.name, one.value, one.share] for one in bench.options],
        "plans": {one.value: fingerprint(one.value) for one in bench.options if os.path.isfile(one.value)},
        "recorded_routing": bench.recorded.hash if bench.recorded else "",
        "prompts": hash_of(bench.prompts),
        "learning": hash_of(bench.learning),
        "learn_seconds": options.learn_seconds,
        "quality": hash_of(bench.quality_ids),
        "quality_tokens": len(bench.quality_ids),
        "choices": len(bench.questions),
        "scored": "after a warm-up, as answers and as prompts",
        "cells": [[cell.name, *vars(cell.protocol).values(), bench.budgets[cell.share]] for cell in cells],
    }


class Plan:
    """What contenders learn before a share's first turn; turn by turn over all contenders, so that those of one turn ran at
    about the same time; then what they lose."""

    def __init__(self, bench: Bench, options: Options, journal: Journal):
        self._bench, self._options, self._journal, self._quality = bench, options, journal, Quality(bench)

    def units(self, cells: Sequence[Cell], contenders: Sequence[Contender]) -> list[Unit]:
        units, shares = [], set[int]()
        for cell in cells:
            if cell.share not in shares:
                units += [self._learning(cell, one) for one in contenders if one.learned]
            shares.add(cell.share)
            units += [self._turn(cell, one, turn) for turn in range(cell.protocol.turns) for one in rotated(contenders, turn)]
            if not cell.read_rate and not self._options.recorded_routing:
                units += [self._scoring(cell, one) for one in contenders]
        return units

    def _not_run(self, cell: Cell, contender: Contender, key: Key) -> str:
        """Who did not start to learn, or in the first turn, is not started again."""
        earlier = [Key("learn", cell.native().name, contender.name), Key("speed", cell.name, contender.name)]
        found = [self._journal.find(one) for one in earlier if one != key]
        return next((record.not_run for record in found if record and record.not_run), "")

    def _unit(self, kind: str, cell: Cell, contender: Contender, turn: int, measure: Any, seconds: float) -> Unit:
        key = Key(kind, cell.native().name if kind == "learn" else cell.name, contender.name, turn)
        return Unit(key, measure, START_SECONDS + seconds, partial(self._not_run, cell, contender, key))

    def _learning(self, cell: Cell, contender: Contender) -> Unit:
        seconds = self._options.learn_seconds
        return self._unit("learn", cell, contender, 0, partial(learn, self._bench, contender, cell, seconds), seconds)

    def _turn(self, cell: Cell, contender: Contender, turn: int) -> Unit:
        measure = partial(measure_turn, self._bench, contender, cell, turn)
        return self._unit("speed", cell, contender, turn, measure, cell.protocol.seconds)

    def _scoring(self, cell: Cell, contender: Contender) -> Unit:
        def measure() -> Figures:
            speed = self._journal.find(Key("speed", cell.name, contender.name))
            exact = speed is not None and speed.figures.get("exact") == 1
            return {"exact": 1} if exact else self._quality.measure(contender, cell)  # nothing is scored, so nothing else is said

        seconds = QUALITY_SECONDS + (CHOICE_SECONDS if self._bench.questions else 0)
        return self._unit("quality", cell, contender, 0, measure, seconds)


def outcome(record: Record) -> str:
    values = record.figures.get
    if record.key.kind == "speed":
        return f"{values('decode_tokens_per_second', 0):.4g} tokens/s, prefill {values('prefill_tokens_per_second', 0):.4g}"
    if record.key.kind == "learn":
        return f"{values('learned_tokens', 0):.0f} tokens in {values('learned_seconds', 0):.1f} s"
    return "exact" if values("exact") else f"perplexity {values('perplexity', 0):.4g}, KL {values('kl', 0):.4g}"


def write(path: str, text: str) -> None:
    if path:
        with open(path, "w") as file:
            file.write(text)


def run(options: Options, say: Say) -> None:
    check_program(options.moed, "--moed")
    listing = os.path.join(options.bin, "moed") if options.recorded_routing else options.moed  # moed-recorded lists nothing
    known = Known.by(check_program(listing, "--bin"))
    contenders = parse_contenders(known, options.presets)
    cells = choose_cells(options)
    if options.list:
        print("\n".join(f"{cell.name}: {contender.name}" for cell in cells for contender in contenders))
        return
    bench = prepare(options, cells, contenders, known, say)
    journal = Journal(options.journal, describe(bench, options, cells))
    Runner(journal, say, outcome, options.stop_after).run(Plan(bench, options, journal).units(cells, contenders))
    parts = report.Parts(cells, contenders, journal, bench.budgets, bench.reference_expert_bytes)
    text = report.markdown(parts)
    print(text, end="")
    write(options.markdown, text)
    write(options.json, json.dumps(report.as_json(parts), indent=1) + "\n")
    if options.picture:
        from . import picture

        picture.save(picture.draw(report.as_json(parts)["cells"]), options.picture)
