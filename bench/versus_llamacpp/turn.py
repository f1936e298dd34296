"""One turn of one contender: start the program, send the protocol's requests, write down what its client saw."""

import concurrent.futures
import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tools.server_process import ServerError

from . import cgroup, disk
from .cells import DISKS, Cell, Contender, Protocol
from .files import Files
from .llama import Llama
from .moed import Moed, Programs
from .results import Turn
from .server import Counters, Server
from .stream import Request, joint_rate

PREFILL_TOKENS = 512
FIRST_PROMPT_TOKENS = 8


@dataclass(frozen=True)
class Bench:
    """What every turn needs."""

    moed: Programs
    llama: str  # the folder of llama.cpp's programs
    files: dict[str, Files]  # by format
    read_ahead: disk.ReadAhead
    text_tokens: list[int]


class Texts:
    """Pieces of one real text; the same for everybody in a turn, other ones in other turns."""

    def __init__(self, tokens: Sequence[int], turn: int):
        if len(tokens) < 4 * PREFILL_TOKENS:
            raise ServerError(f"the text has {len(tokens)} tokens, at least {4 * PREFILL_TOKENS} are needed")
        self.seed = turn + 1
        self._tokens, self._at = tokens, turn * 2999

    def take(self, count: int) -> list[int]:
        start = self._at % (len(self._tokens) - count)
        self._at += count + 101
        return list(self._tokens[start : start + count])


@contextlib.contextmanager
def running(
    contender: Contender, cell: Cell, bench: Bench, limit_bytes: int | None, group: cgroup.Group | None
) -> Iterator[Server]:
    files, context, sessions = bench.files[cell.format], cell.protocol.context_tokens, cell.protocol.sessions
    server: Server
    if contender.program == "moed":
        server = Moed(bench.moed, files.store, contender.threads, context, sessions, limit_bytes, group)
    else:
        server = Llama(bench.llama, files.gguf, contender.threads, contender.repack, context, sessions, group)
    try:
        yield server
    finally:
        server.stop()


def measure_first(server: Server, texts: Texts, protocol: Protocol, turn: Turn) -> None:
    answer = server.generate(Request(texts.take(FIRST_PROMPT_TOKENS), protocol.first_tokens))
    if not answer.times:
        raise ServerError("no token within 60 seconds of a cold start")
    turn.first_token_seconds = answer.times[0] - server.process.started
    turn.cold_decode = answer.rate(0)


def measure_prefill(server: Server, texts: Texts, protocol: Protocol, turn: Turn) -> None:
    for _ in range(protocol.prefills):
        answer = server.generate(Request(texts.take(PREFILL_TOKENS), 1))
        turn.prefill = PREFILL_TOKENS / answer.first_token_seconds if answer.times else None


def measure_decode(server: Server, texts: Texts, protocol: Protocol, turn: Turn) -> None:
    """Counters are read at the first counted token and at the last that came, so they cover the same time as the rate."""
    marks: list[tuple[float, Counters]] = []

    def on_token(count: int) -> None:
        if count >= protocol.skipped_tokens + 1 and not marks:
            marks.append((time.monotonic(), server.counters()))

    tokens = protocol.skipped_tokens + protocol.counted_tokens + 1
    request = Request(texts.take(protocol.prompt_tokens), tokens, texts.seed, protocol.decode_seconds)
    answer = server.generate(request, on_token)
    turn.decode = answer.rate(protocol.skipped_tokens)
    turn.decode_tokens = max(0, len(answer.times) - 1 - protocol.skipped_tokens)
    if turn.decode is None:
        raise ServerError(f"{len(answer.times)} tokens within {protocol.decode_seconds:.0f} seconds: too few to count any")
    (began, before), after = marks[0], server.counters()
    change, seconds = after - before, time.monotonic() - began
    turn.read_bytes_per_token = change.read_bytes / turn.decode_tokens
    turn.read_bytes_per_second = change.read_bytes / seconds
    lookups = change.hits + change.misses
    if lookups:
        turn.hit_ratio = change.hits / lookups
        turn.stall_share = change.stall_seconds / seconds


def measure_sessions(server: Server, texts: Texts, protocol: Protocol, turn: Turn) -> None:
    """All at once with different texts, all at once with the same text and seed, then one alone."""
    count = protocol.sessions
    prompts = [texts.take(protocol.prompt_tokens) for _ in range(count)]

    def request(prompt: list[int], seed: int) -> Request:
        return Request(prompt, protocol.skipped_tokens + protocol.counted_tokens, seed, protocol.decode_seconds)

    def rate_of(requests: Iterable[Request]) -> float | None:
        return joint_rate(list(pool.map(server.generate, requests)))

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        turn.sessions_different = rate_of(request(prompt, seed) for seed, prompt in enumerate(prompts))
        turn.sessions_same = rate_of([request(prompts[0], texts.seed)] * count)
    turn.decode = server.generate(request(prompts[0], texts.seed)).rate(protocol.skipped_tokens)


def check_rate(turn: Turn, limit: int | None) -> None:
    """Reads that pass the throttle by (done by threads outside the group) would be compared with reads that do not."""
    rate = turn.read_bytes_per_second
    if limit is not None and rate is not None and rate > 1.2 * limit:
        turn.decode = None
        raise ServerError(f"read {rate / 1e6:.0f} MB/s under a limit of {limit / 1e6:.0f}")


def measure(server: Server, cell: Cell, texts: Texts, turn: Turn) -> None:
    protocol = cell.protocol
    if protocol.first_tokens:
        measure_first(server, texts, protocol, turn)
    measure_prefill(server, texts, protocol, turn)
    (measure_sessions if protocol.sessions > 1 else measure_decode)(server, texts, protocol, turn)
    server.note_facts(turn)
    check_rate(turn, DISKS[cell.disk])


def take_turn(cell: Cell, contender: Contender, number: int, bench: Bench) -> Turn:
    """What went wrong with the program is in the turn as `failed`."""
    at = time.strftime("%Y-%m-%d %H:%M:%S")
    begin = time.monotonic()
    turn = Turn(cell.name, contender.name, contender.program, contender.threads, number, at)
    if contender.program == "moed":
        turn.build = bench.moed.fingerprint
    texts = Texts(bench.text_tokens, number)
    files = bench.files[cell.format]
    for path in (files.store, files.gguf):
        disk.drop_from_cache(path)
    with contextlib.ExitStack() as stack:
        group = None
        if cell.share is not None:
            turn.limit_bytes = cell.limit_bytes(files.bytes)
            limits = cgroup.group(turn.limit_bytes, bench.read_ahead.device, DISKS[cell.disk])
            group = stack.enter_context(limits)
        if contender.read_ahead_kib is not None:
            stack.enter_context(bench.read_ahead.at(contender.read_ahead_kib))
        try:
            server = stack.enter_context(running(contender, cell, bench, turn.limit_bytes, group))
            measure(server, cell, texts, turn)
            if group is not None:
                turn.peak_bytes = group.peak_bytes()
        except ServerError as error:
            turn.failed = str(error)
    turn.seconds = time.monotonic() - begin
    return turn
