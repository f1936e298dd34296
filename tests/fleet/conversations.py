"""Clients of a fleet: conversations that say what they rely on, and calls that come without end."""

import threading
from typing import Any

import grpc

from tests.fleet.fleet import PROMPT
from tools.server_process import wait_until


class Conversation:
    """Turns of one session. Each says how many tokens it relies on, so that none is answered without its history."""

    def __init__(self, client: Any, name: str):
        self._client = client
        self.name = name
        self.held = 0
        self.said: list[str] = []  # by the server, of turns that were refused

    def turn(self) -> None:
        """grpc.RpcError where the session is not what it was."""
        options = {"session_id": self.name, "max_new_tokens": 4, "ignore_eos": True}
        if self.held:
            options["must_exist"] = True
        answer = self._client.generate(PROMPT, expected_tokens=self.held, **options)
        assert answer.finish.usage.prompt_tokens > self.held, "an answer without its history"
        self.held = answer.finish.session_tokens

    def moved(self) -> bool:
        """Takes a turn; if the session is kept elsewhere no more, says so and begins it anew."""
        try:
            self.turn()
            return False
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            if error.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION):
                raise
            self.said.append(f"{self.name}: {error.details()}")
        self.held = 0
        self.turn()
        return True


def settled(talks: list[Conversation], seconds: float) -> set[str]:
    """Names of those that move, once a balancer has noticed a change and all of them have a place again."""
    moved = wait_until(lambda: {talk.name for talk in talks if talk.moved()}, "sessions to move", seconds)
    while more := {talk.name for talk in talks if talk.moved()}:
        moved |= more
    return moved


class Load:
    """Threads that ask without a session, one answer after the other, until stop()."""

    def __init__(self, client: Any, threads: int = 3, tokens: int = 32):
        self.answers = 0
        self.failures: list[str] = []
        self._client = client
        self._tokens = tokens
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                parts = list(self._client.generate_stream(PROMPT, max_new_tokens=self._tokens, ignore_eos=True))
                whole = bool(parts) and parts[-1].finish.usage.completion_tokens == self._tokens
                if not whole:
                    self.failures.append(f"cut short after {len(parts)} messages")
                self.answers += 1
            except grpc.RpcError as error:
                self.failures.append(str(error))

    def stop(self) -> list[str]:
        """What has failed."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self.failures
