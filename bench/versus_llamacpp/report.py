"""The results as Markdown, and their place in docs/benchmarks.md."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from .results import Best, Rates, Results, Summary, ratio

BEGIN = "<!-- results: written by bench/versus_llamacpp -->"
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


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell_title(name: str) -> str:
    parts = name.split("/")
    if parts[1] == "ram":
        return f"{parts[0]}, everything in RAM"
    return f"{parts[0]}, limit {parts[1]} % of the file, disk {DISK_NAMES[parts[2]]}"


def summary_text(found: Best | None) -> str:
    if found is None:
        return "no result"
    s = found.summary
    return f"{number(s.median)} ({number(s.low)} to {number(s.high)})" if s.count > 1 else number(s.median)


def ratio_text(ours: Best | None, theirs: Best | None, metric: Metric) -> str:
    if ours is None or theirs is None:
        return ""
    times, lowest, highest = ratio(ours.summary, theirs.summary, metric.smaller_is_better)
    return f"{times:.2f} ({lowest:.2f} to {highest:.2f})"


def setting_text(found: Best | None) -> str:
    return "" if found is None else found.contender.split(", ", 1)[1]


def cache_text(results: Results, cell: str, found: Best) -> str:
    """Beside moed's decode: how much of the experts fits its cache, hits, what share of the disk's rate it read at."""
    parts = []
    held, hits, rate = (
        results.summary(cell, found.contender, key) for key in ("experts_in_cache", "hit_ratio", "read_bytes_per_second")
    )
    if held is not None:
        parts.append(f"{held.median:.0%} of the experts")
    if hits is not None:
        parts.append(f"{hits.median:.0%} hits")
    if rate is not None and held is not None and held.median < 1:
        parts.append(f"{rate.median / 1e6:.0f} MB/s read")
    return ", ".join(parts)


def pairs(results: Results, cell: str, metric: Metric) -> list[tuple[str, Best | None, Best | None]]:
    """(label, moed, llama.cpp): the same number of threads, then each at its best."""

    def best(program: str, threads: int | None = None) -> Best | None:
        return results.best(cell, program, metric.key, metric.smaller_is_better, threads)

    rows: list[tuple[str, Best | None, Best | None]] = []
    counts = sorted({turn.threads for turn in results.of(cell, program="moed")})
    for threads in counts:
        ours, theirs = best("moed", threads), best("llama.cpp", threads)
        if ours and theirs:
            rows.append((f"{threads}", ours, theirs))
    ours, theirs = best("moed"), best("llama.cpp")
    if (ours or theirs) and (not rows or (ours, theirs) not in [row[1:] for row in rows]):
        rows.append(("each its best", ours, theirs))
    return rows


def table(results: Results, metric: Metric) -> list[str]:
    lines = []
    for cell in results.cells():
        for label, ours, theirs in pairs(results, cell, metric):
            cells = [
                cell_title(cell),
                label,
                summary_text(ours),
                summary_text(theirs),
                setting_text(theirs),
                ratio_text(ours, theirs, metric),
            ]
            if metric.key == "decode":
                cells.append("" if ours is None else cache_text(results, cell, ours))
            lines.append(f"| {' | '.join(cells)} |")
    for cell, reason in results.not_possible.items() if metric.key == "decode" else ():
        lines.append(f"| {cell_title(cell)} | | not possible here: {reason} | | | | |")
    if not lines:
        return []
    head = ["memory", "threads", f"moed, {metric.unit}", f"llama.cpp, {metric.unit}", "llama.cpp's setting", "ratio"]
    head += ["moed's cache"] if metric.key == "decode" else []
    return [f"### {metric.title}", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines, ""]


def failures(results: Results) -> list[str]:
    seen = dict.fromkeys((turn.cell, turn.contender, turn.failed) for turn in results.turns if turn.failed is not None)
    return [f"- {cell_title(cell)}: {contender}: {reason[:200]}" for cell, contender, reason in seen]


def rates_text(rates: Sequence[Rates]) -> str:
    """Memory and disk: the median of what was measured before each cell, and the range. `rates` is not empty."""

    def text(values: list[float], divisor: float, unit: str) -> str:
        s = Summary.of(values)
        assert s is not None
        spread = f" ({number(s.low / divisor)} to {number(s.high / divisor)})" if s.count > 1 else ""
        return f"{number(s.median / divisor)} {unit}{spread}"

    memory = ", ".join(
        f"{text([rate.memory[count] for rate in rates], 1e9, 'GB/s')} with {count} thread{'s' * (count != '1')}"
        for count in rates[0].memory
    )
    return f"memory reads {memory}; disk reads {text([rate.disk for rate in rates], 1e6, 'MB/s')}"


def machine_text(results: Results) -> str:
    machine = results.machine
    assert machine is not None, "written down before the first turn"
    return (
        f"{machine.cpu}, {machine.processors} processors, {', '.join(machine.isa)}, "
        f"{machine.memory_bytes / 2**30:.0f} GiB, Linux {machine.kernel}; "
        f"{rates_text(results.rates)} (direct, 4 readers; measured before every cell of this run), "
        f"read-ahead {machine.read_ahead_kib} KiB by default."
    )


def markdown(results: Results) -> str:
    times = [turn.at for turn in results.turns]
    versions = "; ".join(f"{name} {version}" for name, version in results.versions.items())
    command = f"Command: `{results.command}`, {min(times)} to {max(times)}." if times else ""
    lines = [f"Machine: {machine_text(results)}", "", f"Versions: {versions}.", command, ""]
    for name, pair in results.files.items():
        lines.append(
            f"- {name}: {os.path.basename(pair.store)} {pair.store_bytes / 1e9:.2f} GB, "
            f"{os.path.basename(pair.gguf)} {pair.gguf_bytes / 1e9:.2f} GB"
        )
    lines.append("")
    for metric in METRICS:
        lines += table(results, metric)
    if results.llama_bench:
        rates = "; ".join(
            f"{name}: prefill {number(r.prefill)}, decode {number(r.decode)} tokens/s" for name, r in results.llama_bench.items()
        )
        lines += [f"`llama-bench` itself on the same GGUF (random tokens, in RAM): {rates}.", ""]
    failed = failures(results)
    return "\n".join(lines + (["Did not run:", "", *failed, ""] if failed else []))


def write_docs(path: str, text: str, picture: str) -> None:
    with open(path) as file:
        document = file.read()
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise OSError(f"{path} has no lines {BEGIN!r} and {END!r}")
    with open(path, "w") as file:
        file.write(f"{before}{BEGIN}\n![moed beside llama.cpp]({os.path.basename(picture)})\n\n{text}\n{END}{after}")
