"""What `systems --json FILE` wrote, drawn: speed against quality, speed against budget. Needs matplotlib."""

import json
import lzma
from collections.abc import Sequence
from typing import Any

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from .. import CompareError
from ..picture import plt, save

__all__ = ["draw", "draw_files", "save"]

Cell = dict[str, Any]  # of the report, as it was written

AUTO, PAPERS, OTHERS = "#1f6f8b", "#c9a227", "#8c8c8c"
PAPER_PRESETS = ("edgemoe", "hobbit", "swapmoe", "fate")
RATE = "decode_tokens_per_second"


def colour(name: str) -> str:
    preset = name.split("@")[0].split("+")[0]
    return AUTO if preset == "auto" else PAPERS if preset in PAPER_PRESETS else OTHERS


def plain(axis: Axis) -> None:
    """Whole numbers instead of powers of ten."""
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def rated(cells: Sequence[Cell], disk: str) -> list[Cell]:
    return [cell for cell in cells if cell["disk"] == disk and RATE in cell.get("median", {})]


def mark(axes: Axes, x: float, y: float, name: str) -> None:
    axes.plot(x, y, "o", color=colour(name), markersize=5)
    axes.annotate(name, (x, y), textcoords="offset points", xytext=(4, 3), fontsize=6.5, color=colour(name))


def draw_quality(axes: Axes, cells: Sequence[Cell], share: float) -> None:
    """How much perplexity grows over the exact one; linear up to a tenth of a percent, so that 0 has a place."""
    for cell in cells:
        quality = cell.get("quality", {})
        ratio = 1 if quality == "exact" else quality.get("perplexity_ratio")
        if cell["share"] == share and ratio is not None:
            mark(axes, 100 * (ratio - 1), cell["median"][RATE], cell["contender"])
    axes.set_title(f"cache {share} %, native disk", fontsize=9)
    axes.set_xscale("symlog", linthresh=0.1)
    plain(axes.xaxis)
    axes.set_yscale("log")
    plain(axes.yaxis)
    axes.set_xlabel("perplexity over the exact one, %", fontsize=8)
    axes.set_ylabel("decode, tokens/s", fontsize=8)


def draw_budget(axes: Axes, cells: Sequence[Cell]) -> None:
    shares = sorted({cell["share"] for cell in cells})
    for name in dict.fromkeys(cell["contender"] for cell in cells):
        if "@" in name or "=" in name:
            continue
        points = sorted((cell["share"], cell["median"][RATE]) for cell in cells if cell["contender"] == name)
        axes.plot(*zip(*points, strict=True), "o-", color=colour(name), markersize=3, linewidth=1)
        axes.annotate(name, points[-1], textcoords="offset points", xytext=(4, 0), fontsize=6.5, color=colour(name))
    axes.set_xticks(shares)
    axes.set_title("native disk", fontsize=9)
    axes.set_xlabel("cache, % of the experts", fontsize=8)
    axes.set_ylabel("decode, tokens/s", fontsize=8)


def draw_disks(axes: Axes, cells: Sequence[Cell], share: float) -> None:
    """One cache size on every disk: bars, when there is no second size to draw a line to."""
    cells = [cell for cell in cells if cell["share"] == share and RATE in cell.get("median", {})]
    names = list(dict.fromkeys(cell["contender"] for cell in cells))
    disks = list(dict.fromkeys(cell["disk"] for cell in cells))
    for index, disk in enumerate(disks):
        rates = {cell["contender"]: cell["median"][RATE] for cell in cells if cell["disk"] == disk}
        at = [position + 0.8 * index / len(disks) for position in range(len(names))]
        axes.barh(
            at,
            [rates.get(name, 0) for name in names],
            0.75 / len(disks),
            color=[colour(name) for name in names],
            alpha=1 - 0.35 * index,
        )
    axes.set_yticks([position + 0.4 - 0.4 / len(disks) for position in range(len(names))], names, fontsize=6.5)
    axes.invert_yaxis()
    axes.set_xscale("log")
    plain(axes.xaxis)
    axes.set_title(f"cache {share} %: {', '.join(disks)} (paler: slower)", fontsize=9)
    axes.set_xlabel("decode, tokens/s (log)", fontsize=8)


def draw(cells: Sequence[Cell]) -> Figure:
    native = rated(cells, "native")
    if not native:
        raise CompareError("no cell on the native disk has a rate: nothing to draw")
    shares = sorted({cell["share"] for cell in native})
    share = 25 if 25 in shares else shares[0]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), dpi=110)
    draw_quality(left, native, share)
    if len(shares) > 1:
        draw_budget(right, native)
    else:
        draw_disks(right, cells, share)
    for axes in (left, right):
        axes.margins(x=0.12)
    return figure


def read_cells(path: str) -> list[Cell]:
    """`path` may be compressed, FILE.xz."""
    with lzma.open(path, "rt") if path.endswith(".xz") else open(path) as file:
        cells: list[Cell] = json.load(file)["cells"]
    return cells


def draw_files(paths: Sequence[str], out: str) -> None:
    save(draw([cell for path in paths for cell in read_cells(path)]), out)
