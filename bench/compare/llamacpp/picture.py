"""The picture: for every cell, decode of both programs with the range of their turns."""

from ..journal import Journal
from ..picture import plt, save
from ..spread import Spread, ratio
from .report import DISK_NAMES, METRICS, best, cells_of

COLOURS = {"moed": "#1f6f8b", "llama.cpp": "#c9a227"}


def label(cell: str) -> str:
    parts = cell.split("/")
    return f"{parts[0]}\nin RAM" if parts[1] == "ram" else f"{parts[0]}, {parts[1]} %\n{DISK_NAMES[parts[2]]}"


def both_decodes(journal: Journal) -> list[tuple[str, dict[str, Spread]]]:
    """(cell, spread by program) where both programs have a number."""
    rows = []
    for cell in cells_of(journal):
        found = {program: best(journal, cell, program, METRICS[0]) for program in COLOURS}
        spreads = {program: one.spread for program, one in found.items() if one is not None}
        if len(spreads) == len(COLOURS) and not cell.endswith("/eight"):
            rows.append((cell, spreads))
    return rows


def draw(journal: Journal, path: str) -> None:
    """No picture where there is nothing to compare."""
    rows = both_decodes(journal)
    if not rows:
        return
    figure, axes = plt.subplots(figsize=(max(5, 1.1 * len(rows) + 1.5), 3.6), dpi=110)
    for index, (program, colour) in enumerate(COLOURS.items()):
        at = [position + (index - 0.5) * 0.38 for position in range(len(rows))]
        spreads = [found[program] for _, found in rows]
        medians = [s.median for s in spreads]
        errors = [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]
        drawn = {"color": colour, "label": program, "yerr": errors, "error_kw": {"linewidth": 1, "capsize": 2}}
        axes.bar(at, medians, 0.36, **drawn)
    for position, (_, found) in enumerate(rows):
        times = ratio(found["moed"], found["llama.cpp"])[0]
        top = max(s.high for s in found.values())
        axes.text(position, top * 1.08, f"{times:.1f}x", ha="center", fontsize=9, fontweight="bold")
    axes.set_yscale("log")
    axes.margins(y=0.15)
    axes.set_xticks(range(len(rows)), [label(cell) for cell, _ in rows], fontsize=8)
    axes.set_ylabel("decode, tokens/s (log)")
    axes.legend(frameon=False, fontsize=8)
    save(figure, path)
