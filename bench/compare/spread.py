"""What is said of several turns: the median with the lowest and the highest, ratios, and how numbers are written."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Iterable[float | None]) -> "Spread | None":
        """None when there is no number."""
        numbers = [value for value in values if value is not None]
        return Spread(statistics.median(numbers), min(numbers), max(numbers), len(numbers)) if numbers else None

    def text(self) -> str:
        return ranged(self.median, self.low, self.high) if self.count > 1 else number(self.median)


def ratio(ours: Spread, theirs: Spread, smaller_is_better: bool = False) -> tuple[float, float, float]:
    """How many times as good ours is, from the medians, and the widest it can be read: (ratio, lowest, highest)."""
    if smaller_is_better:
        return theirs.median / ours.median, theirs.low / ours.high, theirs.high / ours.low
    return ours.median / theirs.median, ours.low / theirs.high, ours.high / theirs.low


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ranged(median: float, low: float, high: float) -> str:
    return f"{number(median)} ({number(low)} to {number(high)})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Of Markdown."""
    return "".join(
        f"{line}\n" for line in (f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows))
    )
