"""One answer as its client saw it, from either program."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    prompt: list[int]  # token ids
    new_tokens: int
    seed: int = 1
    seconds: float = 60.0  # the client hangs up after that


@dataclass
class Answer:
    prompt_tokens: int
    started: float = field(default_factory=time.monotonic)
    times: list[float] = field(default_factory=list)  # arrival of each token

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
