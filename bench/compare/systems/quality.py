"""What an answer loses: a text scored by a contender and by exact computation, token by token."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..journal import Figures
from ..moed import Moed
from ..server import Request
from .bench import Bench
from .cells import Cell
from .choices import ask, compare_choices
from .contenders import Contender

ALTERNATIVES = 20
WINDOW_TOKENS = 64
WARM_UP_TOKENS = 64  # of a prompt and its answer
EXACTLY = Contender("auto", fidelity="exact")
LEAST_MASS = 1e-9  # of the bucket, whose mass is a difference of sums

# As what a text is scored -> the longest that it may take, and the tokens of a step. As answers: in steps of one token, which
# rules and masks treat as steps of an answer. As prompts: in steps as long as a window.
SCORED_AS = {"answers": (300.0, 1), "prompts": (30.0, WINDOW_TOKENS)}
CHOICE_SECONDS = 300.0


@dataclass(frozen=True)
class Window:
    logprobs: Sequence[float]
    top: Sequence[Mapping[int, float]]  # at each position: token -> log probability, the likeliest first

    @staticmethod
    def of(response: Any) -> "Window":
        return Window(list(response.logprobs), [dict(zip(top.token_ids, top.logprobs, strict=True)) for top in response.top])


@dataclass(frozen=True)
class ScoredText:
    windows: Sequence[Window]
    gate_mass_lost: float = 0.0  # share a token lost, on average


def flags_of(scored_as: str) -> tuple[str, ...]:
    """Of the daemon that scores."""
    return "--prefill-chunk", str(SCORED_AS[scored_as][1])


@contextlib.contextmanager
def warmed_up(bench: Bench, contender: Contender, cell: Cell, scored_as: str) -> Iterator[Moed]:
    """A daemon after a prompt and its answer that are not scored: whoever learns or chooses while serving has begun to."""
    with bench.start(contender, cell, *flags_of(scored_as)) as server:
        prompt = bench.prompts[0].prompt(WARM_UP_TOKENS, 0)
        server.generate(Request(prompt, WARM_UP_TOKENS, seconds=3600, fidelity=contender.asks()))
        yield server


def score_text(bench: Bench, contender: Contender, cell: Cell, scored_as: str, seconds: float) -> ScoredText:
    """As many windows as the time allows, at least one."""
    with warmed_up(bench, contender, cell, scored_as) as server:
        begin, windows, lost, tokens = time.monotonic(), list[Window](), 0.0, 0
        for first in range(0, len(bench.quality_ids) - 1, WINDOW_TOKENS):
            if windows and time.monotonic() - begin > seconds:
                break
            ids = bench.quality_ids[first : first + WINDOW_TOKENS]
            response = server.score(ids, contender.asks(), ALTERNATIVES)
            windows.append(Window.of(response))
            lost += response.stats.gate_mass_lost * (len(ids) - 1)
            tokens += len(ids) - 1
    return ScoredText(windows, lost / max(tokens, 1))


def bucketed_divergence(exact: Mapping[int, float], lossy: Mapping[int, float]) -> float:
    """KL(exact || lossy) of one position's distributions over the tokens that both lists name, and one bucket for all others:
    at most the divergence over the whole vocabulary."""
    divergence, exact_rest, lossy_rest = 0.0, 1.0, 1.0
    for token, logprob in exact.items():
        if token in lossy:
            divergence += math.exp(logprob) * (logprob - lossy[token])
            exact_rest -= math.exp(logprob)
            lossy_rest -= math.exp(lossy[token])
    exact_rest, lossy_rest = max(exact_rest, LEAST_MASS), max(lossy_rest, LEAST_MASS)
    return divergence + exact_rest * math.log(exact_rest / lossy_rest)


def compare(exact: ScoredText, lossy: ScoredText) -> Figures:
    """Over the windows that both have."""
    exact_nll = lossy_nll = divergence = agreed = tokens = 0.0
    for a, b in zip(exact.windows, lossy.windows, strict=False):
        for ours, theirs, top, lossy_top in zip(a.logprobs, b.logprobs, a.top, b.top, strict=False):
            exact_nll -= ours
            lossy_nll -= theirs
            agreed += next(iter(top), -1) == next(iter(lossy_top), -1)
            divergence += bucketed_divergence(top, lossy_top)
            tokens += 1
    if not tokens:
        return {}
    return {
        "perplexity": math.exp(lossy_nll / tokens),
        "exact_perplexity": math.exp(exact_nll / tokens),
        "perplexity_ratio": math.exp((lossy_nll - exact_nll) / tokens),
        "top1_agreement": agreed / tokens,
        "kl": divergence / tokens,
        "scored_tokens": tokens,
        "quality_gate_mass_lost": lossy.gate_mass_lost,
    }


class Quality:
    """Scores contenders of one run; what they are compared with is scored once."""

    def __init__(self, bench: Bench):
        self._bench = bench
        self._exact: dict[str, ScoredText] = {}
        self._exact_choices: list[int] = []

    def _as(self, scored_as: str, contender: Contender, cell: Cell) -> Figures:
        seconds = SCORED_AS[scored_as][0]
        if scored_as not in self._exact:
            self._exact[scored_as] = score_text(self._bench, EXACTLY, cell, scored_as, 2 * seconds)
        return compare(self._exact[scored_as], score_text(self._bench, contender, cell, scored_as, seconds))

    def _choose(self, contender: Contender, cell: Cell, seconds: float) -> list[int]:
        with warmed_up(self._bench, contender, cell, "answers") as server:
            return ask(server, contender, self._bench.questions, seconds)

    def _choices(self, contender: Contender, cell: Cell) -> Figures:
        if not self._bench.questions:
            return {}
        if not self._exact_choices:
            self._exact_choices = self._choose(EXACTLY, cell, 2 * CHOICE_SECONDS)
        return compare_choices(self._bench.questions, self._exact_choices, self._choose(contender, cell, CHOICE_SECONDS))

    def measure(self, contender: Contender, cell: Cell) -> Figures:
        prompts = self._as("prompts", contender, cell)
        wanted = {f"prompt_{name}": prompts[name] for name in ("perplexity_ratio", "scored_tokens") if name in prompts}
        return self._as("answers", contender, cell) | wanted | self._choices(contender, cell)
