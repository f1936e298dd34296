"""The picture: for every cell, decode of both programs with the range of their turns."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from .report import DISK_NAMES
from .results import Results, Summary, ratio

COLOURS = {"moed": "#1f6f8b", "llama.cpp": "#c9a227"}


def label(cell: str) -> str:
    parts = cell.split("/")
    return f"{parts[0]}\nin RAM" if parts[1] == "ram" else f"{parts[0]}, {parts[1]} %\n{DISK_NAMES[parts[2]]}"


def both_decodes(results: Results) -> list[tuple[str, dict[str, Summary]]]:
    """(cell, summary by program) where both programs have a number."""
    rows = []
    for cell in results.cells():
        found = {program: results.best(cell, program, "decode") for program in COLOURS}
        summaries = {program: best.summary for program, best in found.items() if best is not None}
        if len(summaries) == len(COLOURS) and not cell.endswith("/eight"):
            rows.append((cell, summaries))
    return rows


def draw(results: Results, path: str) -> None:
    """No picture where there is nothing to compare."""
    rows = both_decodes(results)
    if not rows:
        return
    figure, axes = plt.subplots(figsize=(max(5, 1.1 * len(rows) + 1.5), 3.6), dpi=110)
    for index, (program, colour) in enumerate(COLOURS.items()):
        at = [position + (index - 0.5) * 0.38 for position in range(len(rows))]
        summaries = [found[program] for _, found in rows]
        medians = [s.median for s in summaries]
        axes.bar(
            at,
            medians,
            0.36,
            color=colour,
            label=program,
            yerr=[[s.median - s.low for s in summaries], [s.high - s.median for s in summaries]],
            error_kw={"linewidth": 1, "capsize": 2},
        )
    for position, (_, found) in enumerate(rows):
        times = ratio(found["moed"], found["llama.cpp"])[0]
        top = max(s.high for s in found.values())
        axes.text(position, top * 1.08, f"{times:.1f}x", ha="center", fontsize=9, fontweight="bold")
    axes.set_yscale("log")
    axes.margins(y=0.15)
    axes.set_xticks(range(len(rows)), [label(cell) for cell, _ in rows], fontsize=8)
    axes.set_ylabel("decode, tokens/s (log)")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
