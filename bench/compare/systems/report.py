"""The journal as JSON and as Markdown: a table for each cell, and what is to be reached beside what was."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..journal import Figures, Journal, Key, Record
from ..moed import BESIDE_BUDGET_BYTES
from ..spread import Spread, number, ranged, table
from .ablations import ABLATIONS, Ablation
from .cells import Cell
from .contenders import Contender

RATE = "decode_tokens_per_second"


def percent(value: float) -> str:
    return f"{100 * value:.{1 if value < 0.0995 else 0}f} %"


def megabytes(value: float) -> str:
    return f"{value * 1e-6:.{1 if value < 99.5e6 else 0}f}"


def decimals(count: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{count}f}"


class Column(NamedTuple):
    title: str
    figure: str
    text: Callable[[float], str]


# After the decode rate.
SPEED_COLUMNS = (
    Column("prefill, tokens/s", "prefill_tokens_per_second", number),
    Column("MB a token", "bytes_per_token", megabytes),
    Column("stall", "stall_share", percent),
    Column("disk busy", "disk_busy_share", percent),
    Column("hits, prefill", "prefill_hit_ratio", percent),
    Column("hits, decode", "decode_hit_ratio", percent),
    Column("Belady's hits", "belady_hit_ratio", percent),
    Column("disk, MB/s", "disk_bytes_per_second", megabytes),
    Column("of the bound", "bound_share", percent),
    Column("lowered a token", "lowered_per_token", number),
    Column("skipped", "skipped_per_token", number),
    Column("masked", "masked_per_token", number),
    Column("gate mass lost", "gate_mass_lost", percent),
    Column("J a token", "joules_per_token", number),
)
QUALITY_COLUMNS = (
    Column("perplexity / exact", "perplexity_ratio", decimals(3)),
    Column("top-1 as exact", "top1_agreement", percent),
    Column("KL", "kl", decimals(4)),
    Column("prompts: perplexity / exact", "prompt_perplexity_ratio", decimals(3)),
)
CHOICE_COLUMNS = (
    Column("choices right", "choices_right", percent),
    Column("exactly", "exact_choices_right", percent),
    Column("choices as exact", "choices_as_exact", percent),
)


def spread_json(spread: Spread | None) -> dict[str, float]:
    return {} if spread is None else {"median": spread.median, "low": spread.low, "high": spread.high}


@dataclass(frozen=True)
class Parts:
    cells: Sequence[Cell]
    contenders: Sequence[Contender]
    journal: Journal
    budgets: Mapping[int, int]  # --memory-budget by share
    reference_expert_bytes: int = 0

    def takes_part(self, name: str) -> bool:
        return any(contender.name == name for contender in self.contenders)

    def turns(self, cell: Cell, contender: str) -> list[Record]:
        return self.journal.records("speed", cell.name, contender)[: cell.protocol.turns]

    def spread(self, cell: Cell, contender: str, figure: str) -> Spread | None:
        return Spread.of(turn.figures.get(figure) for turn in self.turns(cell, contender))

    def median(self, cell: Cell, contender: str, figure: str, otherwise: float) -> float:
        spread = self.spread(cell, contender, figure)
        return spread.median if spread else otherwise

    def why_not(self, cell: Cell, contender: str) -> str:
        return next((turn.not_run for turn in self.turns(cell, contender) if turn.not_run), "")

    def quality(self, cell: Cell, contender: str) -> Figures | None:
        """None: exact, every turn's requests were: what they lose is not measured, there is nothing to lose. What nobody
        measured is empty."""
        exact = self.spread(cell, contender, "exact")
        if exact and exact.low == 1:
            return None
        record = self.journal.find(Key("quality", cell.native().name, contender))
        return record.figures if record else {}

    def quality_text(self, cell: Cell, contender: str, column: Column) -> str:
        figures = self.quality(cell, contender)
        return "exact" if figures is None else column.text(figures[column.figure]) if column.figure in figures else ""

    def quality_columns(self, cell: Cell) -> list[Column]:
        choices = [column for column in CHOICE_COLUMNS if any(self.has(cell, one.name, column) for one in self.contenders)]
        return [*QUALITY_COLUMNS, *choices]

    def has(self, cell: Cell, contender: str, column: Column) -> bool:
        return column.figure in (self.quality(cell, contender) or {})


def cell_table(parts: Parts, cell: Cell) -> str:
    # Columns that nobody has a figure for, as energy on many machines, are left out.
    columns = [column for column in SPEED_COLUMNS if any(parts.spread(cell, one.name, column.figure) for one in parts.contenders)]
    quality_columns = parts.quality_columns(cell)
    rows, not_run = [], []
    for name in (contender.name for contender in parts.contenders):
        why, rate = parts.why_not(cell, name), parts.spread(cell, name, RATE)
        if why:
            not_run.append(f"- {name}: not run: {why}\n")
        elif parts.turns(cell, name):
            spreads = [(column, parts.spread(cell, name, column.figure)) for column in columns]
            row = [name, rate.text() if rate else ""] + [
                column.text(spread.median) if spread else "" for column, spread in spreads
            ]
            rows.append(row + [parts.quality_text(cell, name, column) for column in quality_columns])
    budget = parts.budgets[cell.share]
    cache = "as the budget leaves it" if cell.budget else f"{cell.share} % of the experts"
    limits = f"Memory budget {megabytes(budget)} MB, process limit {megabytes(budget + BESIDE_BUDGET_BYTES)} MB."
    head = ["preset", "decode, tokens/s", *(column.title for column in (*columns, *quality_columns))]
    below = "\n" + "".join(not_run) if not_run else ""
    return f"### Cache {cache}, disk: {cell.disk}\n\n{limits}\n\n{table(head, rows)}{below}\n"


class Target(NamedTuple):
    """What is to be reached: a ratio of decode rates. A name with "the best" or "within" is a choice, made in each cell."""

    ours: str
    theirs: str
    reach: float
    share: int = 0  # 0: any


BEST_EXACT = "the best exact rival"
WITHIN = "auto within {}'s gate mass"
TARGETS = [
    Target("hobbit", "load-on-demand-lru", 1.5, 25),
    Target("hobbit", "load-on-demand", 1.5, 25),
    Target("fate", "load-on-demand-lru", 1.3),
    Target("fate", "eap", 1.15),
    Target("fate", "load-on-demand", 3),
    Target("edgemoe", "io-exp", 2),
    Target("edgemoe", "io-qexp", 1.2),
    *(Target(ours, BEST_EXACT, reach, share) for ours in ("auto", "auto+learned") for reach, share in ((1.0, 0), (1.2, 25))),
    *(Target(WITHIN.format(rival), rival, 1.1) for rival in ("hobbit", "swapmoe")),
]


def _fastest(parts: Parts, cell: Cell, among: Sequence[Contender]) -> str:
    rates = {one.name: parts.median(cell, one.name, RATE, 0) for one in among}
    best = max(rates, key=lambda name: rates[name], default="")
    return best if best and rates[best] else ""


def chosen(parts: Parts, cell: Cell, name: str, rival: str) -> str:
    """Who of the contenders a target's name means; "" where there is nobody."""
    if name == BEST_EXACT:
        # Of all that compute exactly and are not auto with some part replaced. None where the usual baseline is missing: of
        # some of an ablation's contenders the best says nothing.
        exact = [one for one in parts.contenders if one.preset != "auto" and parts.median(cell, one.name, "exact", 0) == 1]
        return _fastest(parts, cell, exact) if parts.takes_part("load-on-demand-lru") else ""
    if name == WITHIN.format(rival):
        mass = parts.median(cell, rival, "gate_mass_lost", 0)
        bounded = [one for one in parts.contenders if one.preset == "auto" and one.plain and not one.learned]
        return _fastest(parts, cell, [one for one in bounded if parts.median(cell, one.name, "gate_mass_lost", 1) <= mass])
    return name


def targets(parts: Parts) -> list[dict[str, Any]]:
    """Every target in every cell that it is about, of those whose contenders take part."""
    found = []
    for target in TARGETS:
        for cell in parts.cells:
            ours, theirs = (chosen(parts, cell, name, target.theirs) for name in (target.ours, target.theirs))
            if target.share not in (0, cell.share) or not parts.takes_part(ours) or not parts.takes_part(theirs):
                continue
            titles = (name if name == one else f"{name} ({one})" for name, one in ((target.ours, ours), (target.theirs, theirs)))
            ratio = parts.journal.ratio(cell.name, ours, theirs, RATE)
            met = ratio is not None and ratio.median >= target.reach
            found.append({"what": " / ".join(titles), "cell": cell.name, "reach": target.reach, "met": met, **spread_json(ratio)})
    return found


def target_table(parts: Parts) -> str:
    rows = []
    for row in targets(parts):
        measured = "median" in row
        text = ranged(row["median"], row["low"], row["high"]) if measured else "not measured"
        rows.append(
            [row["what"], row["cell"], number(row["reach"]), text, ("met" if row["met"] else "missed") if measured else ""]
        )
    return f"### What to reach\n\n{table(['decode rates', 'cell', 'reach', 'measured', ''], rows)}" if rows else ""


def _ablations(parts: Parts) -> list[tuple[Cell, Ablation, Spread | None, float | None]]:
    """Of each cell the pairs of which both take part: the ratio of their rates and of their bytes a token."""
    found = []
    for cell in parts.cells:
        for row in ABLATIONS:
            if parts.takes_part(row.of) and parts.takes_part(row.without):
                of, without = (parts.median(cell, name, "bytes_per_token", 0) for name in (row.of, row.without))
                gain = parts.journal.ratio(cell.name, row.of, row.without, RATE)
                found.append((cell, row, gain, of / without if of and without else None))
    return found


def ablation_tables(parts: Parts) -> str:
    head = ["system", "part", "the paper's", "with it", "without it", "decode with", "without", "with / without", "bytes"]
    head += ["perplexity / exact, with", "without"]
    tables: dict[str, list[list[str]]] = {}
    for cell, row, gain, of_bytes in _ablations(parts):
        rates = [parts.spread(cell, name, RATE) for name in (row.of, row.without)]
        texts = [row.system, row.part, row.source, row.of, row.without, *(f"{rate.median:.1f}" if rate else "" for rate in rates)]
        texts.append(f"{gain.median:.2f} ({gain.low:.2f} to {gain.high:.2f})" if gain else "not measured")
        texts.append("" if of_bytes is None else f"{of_bytes:.2f}")
        texts += [parts.quality_text(cell, name, QUALITY_COLUMNS[0]) for name in (row.of, row.without)]
        tables.setdefault(cell.name, []).append(texts)
    return "".join(f"### What each part gives: {cell}\n\n{table(head, rows)}\n" for cell, rows in tables.items())


def markdown(parts: Parts) -> str:
    return "".join(cell_table(parts, cell) for cell in parts.cells) + ablation_tables(parts) + target_table(parts)


def cell_json(parts: Parts, cell: Cell, contender: str) -> dict[str, Any]:
    data: dict[str, Any] = {"share": cell.share, "disk": cell.disk, "contender": contender}
    why = parts.why_not(cell, contender)
    if why:
        return data | {"not_run": why}
    turns = [turn.figures for turn in parts.turns(cell, contender)]
    names = sorted({name for turn in turns for name in turn})
    data |= {"median": {name: parts.median(cell, contender, name, 0) for name in names}, "turns": turns}
    quality = parts.quality(cell, contender)
    return data | ({"quality": "exact"} if quality is None else {"quality": quality} if quality else {})


def as_json(parts: Parts) -> dict[str, Any]:
    budgets = [
        {
            "share": share,
            "memory_budget_bytes": budget,
            "process_limit_bytes": budget + BESIDE_BUDGET_BYTES,
            "reference_expert_bytes": parts.reference_expert_bytes,
        }
        for share, budget in parts.budgets.items()
    ]
    ablations = [
        {"cell": cell.name, "system": row.system, "part": row.part, "source": row.source, "with": row.of, "without": row.without}
        | spread_json(gain)
        | ({} if of_bytes is None else {"bytes_ratio": of_bytes})
        for cell, row, gain, of_bytes in _ablations(parts)
    ]
    cells = [cell_json(parts, cell, contender.name) for cell in parts.cells for contender in parts.contenders]
    return {"run": parts.journal.run, "budgets": budgets, "cells": cells, "ablations": ablations, "targets": targets(parts)}
