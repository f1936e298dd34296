"""The journal as Markdown, and its place in docs/benchmarks.md."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..journal import Figures, Journal
from ..spread import Spread, number, ratio
from ..spread import table as table_of

BEGIN = "<!-- results: written by bench/compare llamacpp -->"
END = "<!-- end of results -->"
DISK_NAMES = {"native": "native", "sata": "550 MB/s", "sd": "90 MB/s"}


@dataclass(frozen=True)
class Metric:
    key: str
    title: str
    unit: str
    smaller_is_better: bool = False


METRICS = (
    Metric("decode", "Decode", "tokens/s"),
    Metric("prefill", "Prefill of 512 tokens", "tokens/s"),
    Metric("first_token_seconds", "Cold start of the program to its first token, prompt of 8 tokens", "s", True),
    Metric("cold_decode", "Decode right after that", "tokens/s"),
    Metric("sessions_different", "8 sessions at once, different texts: tokens of all", "tokens/s"),
    Metric("sessions_same", "8 sessions at once, the same text: tokens of all", "tokens/s"),
)


class Best(NamedTuple):
    contender: str
    spread: Spread


def program_of(contender: str) -> str:
    return contender.split(", ")[0]


def threads_of(contender: str) -> int:
    return int(contender.split(", ")[1].split()[0])


def cells_of(journal: Journal) -> list[str]:
    return list(dict.fromkeys(turn.key.cell for turn in journal.records("speed")))


def summaries(journal: Journal, cell: str, metric: str) -> dict[str, Spread]:
    """By contender, of those that have a number."""
    contenders = dict.fromkeys(turn.key.contender for turn in journal.records("speed", cell))
    found = {contender: journal.spread(cell, contender, metric) for contender in contenders}
    return {contender: spread for contender, spread in found.items() if spread is not None}


def best(journal: Journal, cell: str, program: str, metric: Metric, threads: int | None = None) -> Best | None:
    """The setting with the best median."""
    found = [
        Best(*one)
        for one in summaries(journal, cell, metric.key).items()
        if program_of(one[0]) == program and threads in (None, threads_of(one[0]))
    ]
    sign = -1 if metric.smaller_is_better else 1
    return max(found, key=lambda one: sign * one.spread.median, default=None)


def cell_title(name: str) -> str:
    parts = name.split("/")
    if parts[1] == "ram":
        return f"{parts[0]}, everything in RAM"
    return f"{parts[0]}, limit {parts[1]} % of the file, disk {DISK_NAMES[parts[2]]}"


def ratio_text(ours: Best | None, theirs: Best | None, metric: Metric) -> str:
    if ours is None or theirs is None:
        return ""
    times, lowest, highest = ratio(ours.spread, theirs.spread, metric.smaller_is_better)
    return f"{times:.2f} ({lowest:.2f} to {highest:.2f})"


def cache_text(journal: Journal, cell: str, found: Best) -> str:
    """Beside moed's decode: how much of the experts fits its cache, hits, how fast it read."""
    parts = []
    names = ("experts_in_cache", "hit_ratio", "read_bytes_per_second")
    held, hits, rate = (journal.spread(cell, found.contender, name) for name in names)
    if held is not None:
        parts.append(f"{held.median:.0%} of the experts")
    if hits is not None:
        parts.append(f"{hits.median:.0%} hits")
    if rate is not None and held is not None and held.median < 1:
        parts.append(f"{rate.median / 1e6:.0f} MB/s read")
    return ", ".join(parts)


def read_text(journal: Journal, cell: str, found: Best) -> str:
    """Beside llama.cpp's decode: how fast it read. In RAM there is nothing to read."""
    rate = journal.spread(cell, found.contender, "read_bytes_per_second")
    return f"{rate.median / 1e6:.0f} MB/s" if rate is not None and "/ram" not in cell else ""


def pairs(journal: Journal, cell: str, metric: Metric) -> list[tuple[str, Best | None, Best | None]]:
    """(label, moed, llama.cpp): the same number of threads, then each at its best."""
    contenders = {turn.key.contender for turn in journal.records("speed", cell)}
    counts = sorted({threads_of(name) for name in contenders if program_of(name) == "moed"})
    rows: list[tuple[str, Best | None, Best | None]] = []
    for label, threads in [*((str(count), count) for count in counts), ("each its best", None)]:
        ours, theirs = (best(journal, cell, program, metric, threads) for program in ("moed", "llama.cpp"))
        wanted = (ours and theirs) if threads else (ours or theirs) and (ours, theirs) not in [row[1:] for row in rows]
        if wanted:
            rows.append((label, ours, theirs))
    return rows


def table(journal: Journal, metric: Metric) -> str:
    decode, rows = metric.key == "decode", []
    for cell in cells_of(journal):
        for label, ours, theirs in pairs(journal, cell, metric):
            texts = ["no result" if one is None else one.spread.text() for one in (ours, theirs)]
            setting = "" if theirs is None else theirs.contender.split(", ", 1)[1]
            row = [cell_title(cell), label, *texts, setting, ratio_text(ours, theirs, metric)]
            read = [cache_text(journal, cell, ours) if ours else "", read_text(journal, cell, theirs) if theirs else ""]
            rows.append(row + read * decode)
    if decode:
        last = {record.key.cell: record.not_run for record in journal.records("cell")}
        rows += [[cell_title(cell), "", f"not possible here: {why}", *[""] * 5] for cell, why in last.items() if why]
    if not rows:
        return ""
    head = ["memory", "threads", f"moed, {metric.unit}", f"llama.cpp, {metric.unit}", "llama.cpp's setting", "ratio"]
    head += ["moed's cache", "llama.cpp reads"] * decode
    return f"### {metric.title}\n\n{table_of(head, rows)}\n"


def rates_text(rates: Sequence[Figures]) -> str:
    """Memory and disk: the median of what was measured before each cell, and the range. `rates` is not empty."""

    def text(name: str, divisor: float, unit: str) -> str:
        s = Spread.of(rate[name] / divisor for rate in rates)
        assert s is not None
        return f"{number(s.median)} {unit}" + (f" ({number(s.low)} to {number(s.high)})" if s.count > 1 else "")

    counts = [name.split()[1] for name in rates[0] if name.startswith("memory ")]
    memory = ", ".join(f"{text(f'memory {count}', 1e9, 'GB/s')} with {count} thread{'s' * (count != '1')}" for count in counts)
    return f"memory reads {memory}; disk reads {text('disk', 1e6, 'MB/s')}"


def machine_text(journal: Journal) -> str:
    run, rates = journal.run, [record.figures for record in journal.records("cell") if record.figures]
    measured = f"{rates_text(rates)} (direct, 4 readers; measured before every cell of this run), " if rates else ""
    return (
        f"{run['cpu']}, {run['processors']} processors, {', '.join(run['isa'])}, {run['memory_bytes'] / 2**30:.0f} GiB, "
        f"Linux {run['kernel']}; {measured}read-ahead {run['read_ahead_kib']} KiB by default."
    )


def markdown(journal: Journal) -> str:
    turns, run = journal.records("speed"), journal.run
    times = [turn.facts["at"] for turn in turns]
    commands = [record.facts["command"] for record in journal.records("cell")]
    command = f"Command: `{commands[-1]}`, {min(times)} to {max(times)}." if times and commands else ""
    text = f"Machine: {machine_text(journal)}\n\nVersions: llama.cpp {run['llama.cpp']}; moed {run['moed']}.\n{command}\n\n"
    for record in journal.records("files"):
        sizes = (f"{record.facts[name]} {record.figures[f'{name}_bytes'] / 1e9:.2f} GB" for name in ("store", "gguf"))
        text += f"- {record.key.cell}: {', '.join(sizes)}\n"
    text += "\n" + "".join(table(journal, metric) for metric in METRICS)
    own = [record for record in journal.records("llama-bench") if record.figures]
    if own:
        rates = "; ".join(
            f"{record.key.cell}, {record.key.contender}: prefill {number(record.figures['prefill'])}, "
            f"decode {number(record.figures['decode'])} tokens/s"
            for record in own
        )
        text += f"`llama-bench` itself on the same GGUF (random tokens, in RAM): {rates}.\n\n"
    failed = dict.fromkeys((turn.key.cell, turn.key.contender, turn.not_run) for turn in turns if turn.not_run)
    lines = [f"- {cell_title(cell)}: {contender}: {reason[:200]}\n" for cell, contender, reason in failed]
    return text + ("Did not run:\n\n" + "".join(lines) if lines else "")


def write_docs(path: str, text: str, picture: str) -> None:
    with open(path) as file:
        document = file.read()
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise OSError(f"{path} has no lines {BEGIN!r} and {END!r}")
    with open(path, "w") as file:
        file.write(f"{before}{BEGIN}\n![moed beside llama.cpp]({os.path.basename(picture)})\n\n{text}\n{END}{after}")
