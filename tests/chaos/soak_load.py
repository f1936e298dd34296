"""Kinds of load: what honest, impatient and hostile clients of several tenants do."""

import collections
import contextlib
import random
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from tests.chaos import protocol
from tests.chaos.arrivals import Arrival
from tests.system import attacks
from tests.system.http2_client import DATA, RST_STREAM, Http2Client, header, message
from tools.daemon import Daemon

WORDS = [
    "Once",
    "upon",
    "a",
    "time",
    "there",
    "was",
    "a",
    "little",
    "girl",
    "who",
    "lived",
    "in",
    "the",
    "wood",
    "and",
    "the",
    "old",
    "king",
    "said",
    "to",
    "her",
    "that",
    "sea",
    "was",
    "wide",
]
# Of the context of the demo model, 2,048 tokens.
LONGEST_PROMPT, LONGEST_ANSWER, FULL_SESSION = 600, 120, 1200
SHORTER = 12  # prompts and answers are this much shorter than a trace has them
CALL_SECONDS = 300
STREAM = "/moe.v1.Inference/GenerateStream"
# What a client may hear of a daemon that is well; more of it while a model is replaced.
WELL = {"OK", "CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "ABORTED", "NOT_FOUND", "UNAVAILABLE"}
# Each name has limits of its own.
TENANTS = {
    "alice": ("weight=4", "kv-percent=50"),
    "batch": ("weight=1", "kv-percent=30", "max-waiting=20"),
    "guest": ("max-running=1", "max-waiting=4", "tokens-per-minute=20000"),
}


def token_of(name: str) -> str:
    return name[0] * 40


def bearer(name: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token_of(name)}"),)


class Bearer(grpc.UnaryUnaryClientInterceptor):
    def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
        return go_on(details._replace(metadata=bearer("guest")), request)


class Stranger(attacks.Attacker):
    """Whose calls have a tenant's token. Its raw connections have none."""

    def channel(self, **options: Any) -> grpc.Channel:
        return grpc.intercept_channel(super().channel(**options), Bearer())

    def send(self, method: str, body: bytes, calls: int, **options: Any) -> list[grpc.StatusCode]:
        """Others may be so many that its time is up."""
        return [code for code in super().send(method, body, calls, **options) if code != grpc.StatusCode.DEADLINE_EXCEEDED]


class Load:
    """Thread-safe. What became of calls is counted by kind and status."""

    def __init__(self, daemon: Daemon):
        self._daemon = daemon
        self._closing = contextlib.ExitStack()
        self._stubs = {name: protocol.InferenceStub(self._channel()) for name in TENANTS}
        self._mutex = threading.Lock()
        self._outcomes: collections.Counter[str] = collections.Counter()
        self._unwell: list[str] = []

    def close(self) -> None:
        self._closing.close()

    def _channel(self) -> grpc.Channel:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        return self._closing.enter_context(grpc.insecure_channel(self._daemon.address, options=options))

    def meet(self, arrival: Arrival, drawn: random.Random) -> None:
        kind = drawn.choices(list(KINDS), list(KINDS.values()))[0]
        try:
            outcome = kind(self, arrival, drawn)
        except grpc.RpcError as error:
            outcome = error.code().name
            if outcome not in WELL:
                self._tell(f"{kind.__name__}: {outcome}: {error.details()}")
        except OSError as error:  # closed by the server
            outcome = type(error).__name__
        except Exception as error:
            outcome = type(error).__name__
            self._tell(f"{kind.__name__}: {outcome}: {error}")
        with self._mutex:
            self._outcomes[f"{kind.__name__} {outcome}"] += 1

    def stub(self, name: str) -> Any:
        return self._stubs[name]

    def take_outcomes(self) -> dict[str, int]:
        """Since it was asked before. So also the next one."""
        with self._mutex:
            taken, self._outcomes = self._outcomes, collections.Counter()
        return taken

    def take_unwell(self) -> list[str]:
        with self._mutex:
            taken, self._unwell = self._unwell, []
        return taken

    def _tell(self, words: str) -> None:
        with self._mutex:
            self._unwell.append(words)

    def request(self, arrival: Arrival, drawn: random.Random, **more: Any) -> Any:
        prompt = min(arrival.prompt_tokens // SHORTER + 1, LONGEST_PROMPT)
        pb = protocol.inference
        return pb.GenerateRequest(
            text=" ".join(drawn.choices(WORDS, k=prompt)),
            sampling=pb.Sampling(temperature=drawn.choice((0, 1)), seed=drawn.randrange(1000)),
            stopping=pb.Stopping(max_new_tokens=min(arrival.new_tokens // SHORTER + 1, LONGEST_ANSWER)),
            priority=drawn.randrange(4),
            **more,
        )

    def stream(self, drawn: random.Random, request: Any, timeout: float = CALL_SECONDS) -> Any:
        name = drawn.choice(list(TENANTS))
        return self._stubs[name].GenerateStream(request, timeout=timeout, metadata=bearer(name))

    def read(self, arrival: Arrival, drawn: random.Random) -> str:
        for _ in self.stream(drawn, self.request(arrival, drawn)):
            pass
        return "OK"

    def cancel(self, arrival: Arrival, drawn: random.Random) -> str:
        call = self.stream(drawn, self.request(arrival, drawn))
        for _ in range(drawn.randrange(6)):
            if next(call, None) is None:
                break
        call.cancel()
        return "CANCELLED"

    def hurry(self, arrival: Arrival, drawn: random.Random) -> str:
        for _ in self.stream(drawn, self.request(arrival, drawn), timeout=drawn.uniform(0.01, 1)):
            pass
        return "OK"

    def converse(self, arrival: Arrival, drawn: random.Random) -> str:
        name = drawn.choice(list(TENANTS))
        session = f"conversation {drawn.randrange(12)}"
        request = self.request(Arrival(0, arrival.prompt_tokens // 4, arrival.new_tokens), drawn, session_id=session)
        answer = self._stubs[name].Generate(request, timeout=CALL_SECONDS, metadata=bearer(name))
        if answer.finish.session_tokens > FULL_SESSION:
            forgotten = protocol.inference.DeleteSessionRequest(session_id=session)
            self._stubs[name].DeleteSession(forgotten, timeout=CALL_SECONDS, metadata=bearer(name))
        return "OK"

    def score(self, arrival: Arrival, drawn: random.Random) -> str:
        request = protocol.inference.ScoreRequest(text=self.request(arrival, drawn).text)
        self._stubs["batch"].Score(request, timeout=CALL_SECONDS, metadata=bearer("batch"))
        return "OK"

    def connect_anew(self, arrival: Arrival, drawn: random.Random) -> str:
        with grpc.insecure_channel(self._daemon.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = protocol.InferenceStub(channel)
            stub.Generate(self.request(arrival, drawn), timeout=CALL_SECONDS, metadata=bearer("alice"))
        return "OK"

    def damage(self, arrival: Arrival, drawn: random.Random) -> str:
        """A request with bytes that are others, or that ends early."""
        body = bytearray(self.request(arrival, drawn).SerializeToString())
        for _ in range(drawn.randrange(4)):
            body[drawn.randrange(len(body))] = drawn.randrange(256)
        with grpc.insecure_channel(self._daemon.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            call = channel.unary_stream(STREAM)
            for _ in call(bytes(body[: drawn.randrange(len(body)) + 1]), timeout=5, metadata=bearer("guest")):
                pass
        return "OK"

    def break_off(self, arrival: Arrival, drawn: random.Random) -> str:
        """Half a frame, half a message, a reset, a reader that does not read for a while."""
        client = Http2Client(self._daemon.address, window=drawn.choice((None, 0)))
        try:
            more = header("authorization", f"Bearer {token_of('guest')}".encode())
            stream = client.open_stream(STREAM, more)
            body = message(self.request(arrival, drawn).SerializeToString())
            end = drawn.choice((len(body) // 2, len(body)))
            client.send_data(stream, body[:end], end=end == len(body))
            what = drawn.randrange(4)
            if what == 0:
                client.socket.sendall(b"\0\x40\0" + bytes([DATA, 0]) + struct.pack(">I", 1) + b"x" * 100)
            elif what == 1:
                client.send(RST_STREAM, 0, stream, struct.pack(">I", 8))
            elif what == 2:
                time.sleep(drawn.uniform(0, 5))
        finally:
            client.close()
        return "closed"

    def attack(self, _arrival: Arrival, drawn: random.Random) -> str:
        kind = drawn.choice(attacks.KINDS)
        attacker = Stranger(self._daemon.address, None)
        try:
            kind(attacker)
        finally:
            attacker.close()
        return kind.__name__


Kind = Callable[[Load, Arrival, random.Random], str]
# How often, of 1,000.
KINDS: dict[Kind, int] = {
    Load.read: 380,
    Load.cancel: 170,
    Load.hurry: 80,
    Load.converse: 200,
    Load.score: 50,
    Load.connect_anew: 40,
    Load.damage: 40,
    Load.break_off: 32,
    Load.attack: 8,
}
