"""tools/training's span infilling: what an example hides is what its answer says, and how much of an answer is right."""

import pathlib
import sys
import unittest

import numpy as np

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "training"))

import infilling
from infilled import END, FIRST_SENTINEL, SPANS, correct_tokens, spans_of

FIRST_TEXT = FIRST_SENTINEL + SPANS


def put_back(example: infilling.Example) -> list[int]:
    spans = spans_of(example.target)
    text: list[int] = []
    for token in example.source[:-1]:
        text += spans[token - FIRST_SENTINEL] if FIRST_SENTINEL <= token < FIRST_TEXT else [token]
    return text


class Infilling(unittest.TestCase):
    def test_spans_put_back_are_the_text(self) -> None:
        text = np.arange(FIRST_TEXT, FIRST_TEXT + 1000)
        for example in infilling.examples(text, 50, np.random.default_rng(3)):
            whole = put_back(example)
            self.assertEqual(whole, list(range(whole[0], whole[0] + infilling.WINDOW)))
            self.assertEqual(list(spans_of(example.target)), list(range(SPANS)))
            self.assertEqual(len(example.source), infilling.WINDOW - infilling.MASKED + SPANS + 1)
            self.assertEqual(len(example.target), infilling.MASKED + SPANS + 1)
            self.assertEqual((example.source[-1], example.target[-1]), (END, END))

    def test_the_same_seed_makes_the_same_examples(self) -> None:
        text = np.arange(FIRST_TEXT, FIRST_TEXT + 1000)
        first, again, other = (infilling.examples(text, 5, np.random.default_rng(seed)) for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_tokens_count_at_their_place_of_their_span(self) -> None:
        zero, one, two = range(FIRST_SENTINEL, FIRST_SENTINEL + 3)
        target = [zero, 50, 51, one, 52, END]
        for answer, right in (
            (target, 3),
            ([zero, 50, 51, one, 52], 3),
            ([one, 52, zero, 50, 51, END], 3),  # in another order
            ([zero, 51, 50, one, 52, END], 1),
            ([zero, 50, one, 51, 52, END], 1),
            ([two, 50, 51, 52, END], 0),
            ([50, 51, 52, END], 0),  # of no span
            ([zero, END, 51, one, 52], 0),
            ([], 0),
        ):
            self.assertEqual(correct_tokens(answer, target), right, answer)


if __name__ == "__main__":
    unittest.main()
