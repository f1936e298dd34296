"""Span infilling as T5 is trained on it: <extra_id_N> stands for each of a text's masked spans, the answer says what they were.

All examples have the same lengths, so a batch has no padding.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from infilled import END, FIRST_SENTINEL, SPANS

Ids = NDArray[np.int64]

WINDOW = 80  # tokens of text in an example
MASKED = 24  # of them in spans
SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>", *(f"<extra_id_{i}>" for i in range(SPANS)))


@dataclasses.dataclass(frozen=True)
class Example:
    source: list[int]
    target: list[int]


def _lengths(rng: np.random.Generator, total: int, parts: int) -> list[int]:
    """Positive numbers with a sum."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1
    return [int(length) for length in np.diff(cuts, prepend=0, append=total)]


def make_example(text: Ids, rng: np.random.Generator) -> Example:
    """Of WINDOW tokens, which begin with text that stays."""
    source: list[int] = []
    target: list[int] = []
    at = 0
    kept, masked = _lengths(rng, len(text) - MASKED, SPANS), _lengths(rng, MASKED, SPANS)
    for span, (before, length) in enumerate(zip(kept, masked, strict=True)):
        source += [*text[at : at + before].tolist(), FIRST_SENTINEL + span]
        target += [FIRST_SENTINEL + span, *text[at + before : at + before + length].tolist()]
        at += before + length
    return Example([*source, END], [*target, END])


def examples(text: Ids, count: int, rng: np.random.Generator) -> list[Example]:
    starts = rng.integers(0, len(text) - WINDOW, count)
    return [make_example(text[start : start + WINDOW], rng) for start in starts]
