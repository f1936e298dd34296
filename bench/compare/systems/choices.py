"""Multiple choice: which of four pieces of a text goes on where another one ends. The answer is the piece that the model holds
likeliest, as in LAMBADA's and HellaSwag's kind of task; a guess is right once in four."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from .. import CompareError
from ..journal import Figures
from ..moed import Moed
from .contenders import Contender

CONTEXT_TOKENS, ANSWER_TOKENS, ANSWERS = 32, 16, 4
QUESTION_TOKENS = CONTEXT_TOKENS + ANSWER_TOKENS
SEED = 20


@dataclass(frozen=True)
class Question:
    context: Sequence[int]
    answers: Sequence[Sequence[int]]
    right: int  # index


def cut(ids: Sequence[int], count: int, path: str) -> list[Question]:
    """Pieces that do not overlap, evenly over the text. The wrong answers are those of other questions."""
    if count * QUESTION_TOKENS > len(ids) or 0 < count < ANSWERS:
        raise CompareError(f"{path}: {len(ids)} tokens; --choices takes {ANSWERS} to {len(ids) // QUESTION_TOKENS} of it, or 0")
    begins = [i * (len(ids) // count) for i in range(count)]
    rights = [ids[begin + CONTEXT_TOKENS : begin + QUESTION_TOKENS] for begin in begins]
    drawn = random.Random(SEED)
    questions = []
    for i, begin in enumerate(begins):
        others = drawn.sample([j for j in range(count) if j != i], ANSWERS - 1)
        order = drawn.sample([i, *others], ANSWERS)
        questions.append(Question(ids[begin : begin + CONTEXT_TOKENS], [rights[j] for j in order], order.index(i)))
    return questions


def choose(server: Moed, contender: Contender, question: Question) -> int:
    """The likeliest answer's index; all are as long."""
    logprobs = []
    for answer in question.answers:
        scored = server.score([*question.context, *answer], contender.asks()).logprobs
        logprobs.append(sum(scored[-ANSWER_TOKENS:]))
    return max(range(ANSWERS), key=logprobs.__getitem__)


def ask(server: Moed, contender: Contender, questions: Sequence[Question], seconds: float) -> list[int]:
    """The choices of as many questions as the time allows, of at least one if there is one."""
    end, chosen = time.monotonic() + seconds, list[int]()
    for question in questions:
        if chosen and time.monotonic() > end:
            break
        chosen.append(choose(server, contender, question))
    return chosen


def compare_choices(questions: Sequence[Question], exact: Sequence[int], lossy: Sequence[int]) -> Figures:
    """Over the questions that both were asked."""
    both = list(zip(questions, exact, lossy, strict=False))
    if not both:
        return {}
    return {
        "choices_asked": len(both),
        "choices_right": sum(question.right == choice for question, _, choice in both) / len(both),
        "exact_choices_right": sum(question.right == choice for question, choice, _ in both) / len(both),
        "choices_as_exact": sum(a == b for _, a, b in both) / len(both),
    }
