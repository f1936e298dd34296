"""What the plot scripts share: JSON in, a PNG without a display out."""

import argparse
import json
from collections.abc import Callable
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

__all__ = ["main", "plt"]


def save(figure: Figure, path: str) -> None:
    """Small ticks, no box around what `figure` shows."""
    for axes in figure.axes:
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def main(description: str | None, draw: Callable[[Any], Figure]) -> None:
    """`draw(what the JSON file holds)` returns the figure."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json")
    parser.add_argument("png")
    options = parser.parse_args()
    with open(options.json) as file:
        save(draw(json.load(file)), options.png)
