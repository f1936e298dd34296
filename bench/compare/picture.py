"""How every picture looks. Needs matplotlib."""

from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["plt", "save"]


def save(figure: Any, path: str) -> None:
    """Small ticks, no box around what the figure shows."""
    for axes in figure.axes:
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
