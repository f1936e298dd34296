"""bench/compare without a daemon: what a scored text and choices lose."""

import math
import unittest

from bench.compare import CompareError
from bench.compare.systems import choices
from bench.compare.systems.quality import ScoredText, Window, bucketed_divergence, compare


class QualityTest(unittest.TestCase):
    def test_divergence_by_hand(self) -> None:
        log = math.log
        exact = {1: log(0.5), 2: log(0.25), 3: log(0.125)}
        self.assertAlmostEqual(bucketed_divergence(exact, exact), 0)
        # Tokens 1 and 2 are shared; the rest is 0.25 against 0.5.
        lossy = {1: log(0.25), 2: log(0.25), 9: log(0.1)}
        self.assertAlmostEqual(bucketed_divergence(exact, lossy), 0.5 * log(2) + 0.25 * log(0.5))
        # Nothing is shared: one bucket that holds everything.
        self.assertAlmostEqual(bucketed_divergence(exact, {7: log(0.9)}), 0)

    def test_it_compares_the_windows_that_both_have(self) -> None:
        one = {1: 0.0}
        exact = ScoredText([Window([-1, -2], [one, one]), Window([-9], [one])])
        figures = compare(exact, ScoredText([Window([-2, -2], [one, {4: 0.0}])], 0.125))
        self.assertEqual((figures["scored_tokens"], figures["top1_agreement"]), (2, 0.5))
        self.assertAlmostEqual(figures["perplexity"], math.exp(2))
        self.assertAlmostEqual(figures["exact_perplexity"], math.exp(1.5))
        self.assertAlmostEqual(figures["perplexity_ratio"], math.exp(0.5))
        self.assertEqual(figures["quality_gate_mass_lost"], 0.125)
        self.assertEqual(compare(exact, ScoredText([])), {})


class ChoicesTest(unittest.TestCase):
    def test_questions_are_pieces_that_do_not_overlap(self) -> None:
        ids = list(range(10 * choices.QUESTION_TOKENS + 7))
        questions = choices.cut(ids, 10, "text")
        self.assertEqual(questions, choices.cut(ids, 10, "text"), "drawn by a fixed seed")
        rights = {tuple(question.answers[question.right]) for question in questions}
        self.assertEqual(len(rights), 10)
        for question in questions:
            right = question.answers[question.right]
            self.assertEqual(right[0], question.context[-1] + 1, "goes on where the context ends")
            self.assertEqual({len(answer) for answer in question.answers}, {choices.ANSWER_TOKENS})
            self.assertEqual(len({answer[0] for answer in question.answers}), choices.ANSWERS)
            self.assertTrue(rights.issuperset(map(tuple, question.answers)))
        self.assertGreater(len({question.right for question in questions}), 1)

    def test_a_text_that_is_too_short_is_named(self) -> None:
        for count in (11, 3):
            with self.assertRaisesRegex(CompareError, "text: 480 tokens; --choices takes 4 to 10 of it, or 0"):
                choices.cut(range(480), count, "text")
        self.assertEqual(choices.cut(range(5), 0, "text"), [])

    def test_it_compares_the_questions_that_both_were_asked(self) -> None:
        questions = [choices.Question([], [], right) for right in (0, 1, 2, 3)]
        figures = choices.compare_choices(questions, [0, 1, 2, 3], [0, 2])
        self.assertEqual(figures["choices_asked"], 2)
        self.assertEqual((figures["choices_right"], figures["exact_choices_right"], figures["choices_as_exact"]), (0.5, 1, 0.5))
        self.assertEqual(choices.compare_choices(questions, [0], []), {})


if __name__ == "__main__":
    unittest.main()
