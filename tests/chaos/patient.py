"""A daemon under test, what it was like while it was well, and whether it is so again."""

import os
import pathlib
import resource
from collections.abc import Callable
from typing import Any

import grpc

from tests.chaos import protocol
from tools.daemon import Daemon
from tools.server_process import wait_until

LONG = os.environ.get("CHAOS") == "long"
TIMES = 10 if LONG else 1
WAIT_SECONDS = 120
MIB = 1 << 20
BUDGET = 12 * MIB
ALLOWANCE = 64 * MIB
LEFT_BEHIND = (16 if LONG else 8) * MIB  # in caches of the allocator and of gRPC
POOLED = 4 * (os.cpu_count() or 1) + 8  # threads that gRPC keeps once it had work for them
PROMPT = "Once upon a time there was a little"
LONG_PROMPT = "The old king said to his daughter that the sea was wide. " * 12
LATE_NANOS = 3_000_000  # of each read, so that an answer of many tokens takes seconds

OK, CANCELLED, DEADLINE = grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED
UNAVAILABLE, DATA_LOSS = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DATA_LOSS


def request(new_tokens: int, text: str = PROMPT) -> Any:
    pb = protocol.inference
    return pb.GenerateRequest(
        text=text,
        sampling=pb.Sampling(temperature=0),
        stopping=pb.Stopping(max_new_tokens=new_tokens, ignore_eos=True),
        response=pb.ResponseOptions(logprobs=True),
    )


def eventually(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, what, WAIT_SECONDS)


class Patient:
    def __init__(self, daemon: Daemon):
        self.daemon = daemon
        self.process = pathlib.Path(f"/proc/{daemon.pid}")
        self._channels: list[grpc.Channel] = []
        channel = self.channel()
        self.inference = protocol.InferenceStub(channel)
        self.control = protocol.ControlStub(channel)
        for _ in range(8):
            self.answer()
        self.well = self.answer()
        self.descriptors, self.threads, self.resident = self.open_descriptors(), self.running_threads(), self.resident_bytes()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._channels.clear()

    def channel(self) -> grpc.Channel:
        """A connection of its own."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        channel = grpc.insecure_channel(self.daemon.address, options=options)
        self._channels.append(channel)
        return channel

    def close_channels_but_first(self) -> None:
        for channel in self._channels[1:]:
            channel.close()
        del self._channels[1:]

    def answer(self) -> list[tuple[int, float]]:
        answer = self.inference.Generate(request(24), timeout=WAIT_SECONDS)
        return [(token.token_id, token.logprob) for token in answer.logprobs]

    def answer_when_there_is_room(self) -> list[tuple[int, float]]:
        """Texts of clients that have left may still wait to be tokenised."""
        answers: list[list[tuple[int, float]]] = []

        def answered() -> bool:
            try:
                answers.append(self.answer())
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
            return bool(answers)

        eventually(answered, "room for a request")
        return answers[0]

    def stats(self) -> Any:
        asked = protocol.control.GetStatsRequest()
        asked.window.nanos = 1
        return self.control.GetStats(asked, timeout=WAIT_SECONDS)

    def idle(self) -> bool:
        stats = self.stats()
        return bool(stats.running == 0 and stats.waiting == 0)

    def ticked(self) -> bool:
        """What is sampled each second was sampled anew."""
        first = self.stats().window_seconds  # since the last sample
        eventually(lambda: self.stats().window_seconds < first, "the ticker to tick")
        return True

    def open_descriptors(self) -> int:
        return len(list((self.process / "fd").iterdir()))

    def running_threads(self) -> int:
        return len(list((self.process / "task").iterdir()))

    def resident_bytes(self) -> int:
        return self.daemon.memory_bytes("VmRSS")

    def limit(self, which: int, value: int) -> None:
        """Of its resources, while it runs; -1: none."""
        resource.prlimit(self.daemon.pid, which, (value, resource.prlimit(self.daemon.pid, which)[1]))

    def check(self) -> None:
        self.daemon.check()
        eventually(self.idle, "every request to end")
        assert self.answer_when_there_is_room() == self.well, "other bits than before"
        eventually(lambda: self.open_descriptors() <= self.descriptors, "descriptors to be closed")
        eventually(lambda: self.running_threads() <= self.threads + POOLED, "threads to end")
        eventually(lambda: self.resident_bytes() <= self.resident + LEFT_BEHIND, "memory to be free again")
        assert self.daemon.memory_bytes("VmHWM") <= BUDGET + ALLOWANCE

    def code_of_answer(self) -> tuple[grpc.StatusCode, str]:
        try:
            self.inference.Generate(request(24), timeout=WAIT_SECONDS)
            return OK, ""
        except grpc.RpcError as error:
            return error.code(), error.details()

    def until_struck(self) -> tuple[grpc.StatusCode, str]:
        """What becomes of the first request that fails, of which there is one once something has to be read."""
        return wait_until(lambda: None if (got := self.code_of_answer())[0] == OK else got, "a request to fail", WAIT_SECONDS)
