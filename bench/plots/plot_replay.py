"""Draws what `moe-bench replay --policy ... --budget 0.05,0.1,... --json` printed: hit ratio by cache size.

python3 bench/plots/plot_replay.py replay.json replay.png
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

if not __package__:  # run by its path
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

from bench.compare.picture import plt, save

COLOURS = {
    "learned": "#1f6f8b",
    "auto": "#1f6f8b",
    "hobbit": "#c9a227",
    "fate": "#b5651d",
    "edgemoe": "#7b5ea7",
    "belady": "#222222",
}
OTHERS = "#9c9c9c"


def lines_of(results: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Points (budget, hit ratio) by policy, and those that were ready where a policy reads ahead."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for result in sorted([results] if isinstance(results, Mapping) else results, key=lambda one: one["budget"]):
        for policy in result["policies"]:
            name = policy["name"]
            if name != "auto":
                lines.setdefault(name, []).append((result["budget"], policy["hit_ratio"]))
            if policy["ready_ratio"] != policy["hit_ratio"]:
                lines.setdefault(f"{name}, ready in time", []).append((result["budget"], policy["ready_ratio"]))
    return lines


def draw(results: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Figure:
    figure, axes = plt.subplots(figsize=(6.5, 4.6), dpi=110)
    for name, points in lines_of(results).items():
        policy = name.split(",")[0]
        style = "--" if policy == "belady" or name != policy else "-"
        axes.plot(
            [100 * budget for budget, _ in points],
            [100 * ratio for _, ratio in points],
            style,
            marker="o",
            markersize=3,
            linewidth=1.3,
            color=COLOURS.get(policy, OTHERS),
            label=name,
        )
    axes.set_xlabel("cache, % of the experts", fontsize=8)
    axes.set_ylabel("experts that were there when wanted, %", fontsize=8)
    axes.legend(fontsize=7, frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json")
    parser.add_argument("png")
    options = parser.parse_args()
    with open(options.json) as file:
        save(draw(json.load(file)), options.png)


if __name__ == "__main__":
    main()
