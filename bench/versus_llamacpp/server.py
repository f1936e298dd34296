"""What a turn asks of either program while it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tools.server_process import ServerProcess

from .results import Turn
from .stream import Answer, Request

OnToken = Callable[[int], None]  # so many tokens of the answer have come


@dataclass(frozen=True)
class Counters:
    """Since the start. A program without a cache of experts has only read_bytes."""

    read_bytes: int
    hits: int = 0
    misses: int = 0
    stall_seconds: float = 0.0

    def __sub__(self, before: "Counters") -> "Counters":
        return Counters(
            self.read_bytes - before.read_bytes,
            self.hits - before.hits,
            self.misses - before.misses,
            self.stall_seconds - before.stall_seconds,
        )


class Server(Protocol):
    process: ServerProcess

    def generate(self, request: Request, on_token: OnToken | None = None) -> Answer:
        """ServerError when it fails; as many tokens as came when the client hung up."""

    def counters(self) -> Counters: ...

    def note_facts(self, turn: Turn) -> None:
        """Writes down what does not change while it runs."""

    def stop(self) -> None: ...
