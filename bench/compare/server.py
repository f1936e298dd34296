"""What a turn asks of a daemon, and what its client sees of one answer."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tools.server_process import ServerProcess

OnToken = Callable[[int], None]  # so many tokens of the answer have come
Counters = dict[str, float]  # since the start, by name
Fidelity = tuple[str, float]  # of moe.v1.Fidelity: the kind, and what of the gate mass may be lost


@dataclass(frozen=True)
class Request:
    prompt: Sequence[int]  # token ids
    new_tokens: int
    seed: int = 1
    seconds: float = 60.0  # the answer ends after that
    fidelity: Fidelity | None = None  # None: it does not say


@dataclass
class Answer:
    prompt_tokens: int
    started: float = field(default_factory=time.monotonic)
    times: list[float] = field(default_factory=list)  # arrival of each token
    stats: Any = None  # moe.v1.RequestStats, from moed

    @property
    def first_token_seconds(self) -> float:
        return self.times[0] - self.started

    def arrived(self, total: int) -> None:
        """As many tokens are there now."""
        now = time.monotonic()
        self.times.extend([now] * (total - len(self.times)))

    def rate(self, skipped: int) -> float | None:
        """Tokens a second after the first `skipped`; None below two of them."""
        counted = self.times[skipped:]
        return (len(counted) - 1) / (counted[-1] - counted[0]) if len(counted) > 1 and counted[-1] > counted[0] else None


def joint_rate(answers: Sequence[Answer]) -> float | None:
    """Tokens a second of all answers together while all of them were being generated; None if they never were at once."""
    begin = max(answer.times[0] for answer in answers)
    end = min(answer.times[-1] for answer in answers)
    if end <= begin:
        return None
    return sum(begin < moment <= end for answer in answers for moment in answer.times) / (end - begin)


class Server(Protocol):
    process: ServerProcess

    def generate(self, request: Request, on_token: OnToken | None = None) -> Answer:
        """ServerError when it fails; as many tokens as came when the time was over."""

    def counters(self) -> Counters:
        """At least read_bytes."""

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Watched:
    """An answer and what was counted beside it: from its begin, and from its first counted token."""

    answer: Answer
    tokens: int  # that were counted
    seconds: float  # in which they came
    whole: Counters
    counted: Counters
    counted_seconds: float  # between the readings of `counted`


def watch(server: Server, request: Request, skipped: int, counters: Callable[[], Counters] | None = None) -> Watched:
    """Counters are read at the first counted token and at the end, so they cover the same time as the rate."""
    counters = counters or server.counters
    marks: list[tuple[float, Counters]] = []

    def on_token(count: int) -> None:
        if count > skipped and not marks:
            marks.append((time.monotonic(), counters()))

    before = counters()
    answer = server.generate(request, on_token)
    end, after = time.monotonic(), counters()
    begin, at_count = marks[0] if marks else (end, after)
    counted = answer.times[skipped:]
    return Watched(
        answer,
        max(0, len(counted) - 1),
        counted[-1] - counted[0] if counted else 0.0,
        {name: after[name] - value for name, value in before.items()},
        {name: after[name] - value for name, value in at_count.items()},
        end - begin,
    )
