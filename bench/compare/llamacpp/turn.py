"""One turn of one contender: start the program, send the protocol's requests, write down what its client saw."""

import concurrent.futures
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tools.server_process import ServerError

from .. import cgroup, disk
from ..journal import Figures, Key, Record
from ..moed import BESIDE_BUDGET_BYTES, Moed
from ..server import Request, Server, joint_rate, watch
from .cells import DISKS, Cell, Contender, Protocol
from .files import Files
from .llama import Llama

PREFILL_TOKENS = 512
FIRST_PROMPT_TOKENS = 8


@dataclass(frozen=True)
class Bench:
    """What every turn needs."""

    moed: str  # the program
    moed_flags: Sequence[str]
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


def start(contender: Contender, cell: Cell, bench: Bench, limit_bytes: int | None, group: cgroup.Group | None) -> Server:
    files, context, sessions = bench.files[cell.format], cell.protocol.context_tokens, cell.protocol.sessions
    command_in = group.command if group else None
    if contender.program == "llama.cpp":
        return Llama(bench.llama, files.gguf, contender.threads, contender.repack, context, sessions, command_in)
    flags = ["--store", files.store, "--threads", str(contender.threads), "--prefix-cache", "off"]
    flags += ["--prompt-lookup", "off"]  # drafts are no part of what is compared
    flags += ["--max-context", str(context), "--max-running", str(sessions)]
    if limit_bytes is not None:
        flags += ["--memory-budget", str(limit_bytes - BESIDE_BUDGET_BYTES)]
    return Moed(bench.moed, [*flags, *bench.moed_flags], command_in)


def measure_first(server: Server, texts: Texts, protocol: Protocol, figures: Figures) -> None:
    if not protocol.first_tokens:
        return
    answer = server.generate(Request(texts.take(FIRST_PROMPT_TOKENS), protocol.first_tokens))
    if not answer.times:
        raise ServerError("no token within 60 seconds of a cold start")
    figures["first_token_seconds"] = answer.times[0] - server.process.started
    note(figures, "cold_decode", answer.rate(0))


def measure_prefill(server: Server, texts: Texts, protocol: Protocol, figures: Figures) -> None:
    for _ in range(protocol.prefills):
        answer = server.generate(Request(texts.take(PREFILL_TOKENS), 1))
        note(figures, "prefill", PREFILL_TOKENS / answer.first_token_seconds if answer.times else None)


def measure_decode(server: Server, texts: Texts, protocol: Protocol, figures: Figures) -> None:
    tokens = protocol.skipped_tokens + protocol.counted_tokens + 1
    request = Request(texts.take(protocol.prompt_tokens), tokens, texts.seed, protocol.decode_seconds)
    seen = watch(server, request, protocol.skipped_tokens)
    rate = seen.answer.rate(protocol.skipped_tokens)
    if rate is None:
        raise ServerError(f"{len(seen.answer.times)} tokens within {protocol.decode_seconds:.0f} seconds: too few to count any")
    figures |= {"decode": rate, "decode_tokens": seen.tokens}
    figures["read_bytes_per_token"] = seen.counted["read_bytes"] / seen.tokens
    figures["read_bytes_per_second"] = seen.counted["read_bytes"] / seen.counted_seconds
    if seen.counted.get("lookups"):
        figures["hit_ratio"] = seen.counted["hits"] / seen.counted["lookups"]
        figures["stall_share"] = seen.counted["stall_seconds"] / seen.counted_seconds


def measure_sessions(server: Server, texts: Texts, protocol: Protocol, figures: Figures) -> None:
    """All at once with different texts, all at once with the same text and seed, then one alone."""
    count = protocol.sessions
    prompts = [texts.take(protocol.prompt_tokens) for _ in range(count)]

    def request(prompt: list[int], seed: int) -> Request:
        return Request(prompt, protocol.skipped_tokens + protocol.counted_tokens, seed, protocol.decode_seconds)

    def rate_of(requests: Iterable[Request]) -> float | None:
        return joint_rate(list(pool.map(server.generate, requests)))

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        note(figures, "sessions_different", rate_of(request(prompt, seed) for seed, prompt in enumerate(prompts)))
        note(figures, "sessions_same", rate_of([request(prompts[0], texts.seed)] * count))
    note(figures, "decode", server.generate(request(prompts[0], texts.seed)).rate(protocol.skipped_tokens))


def note(figures: Figures, name: str, value: float | None) -> None:
    if value is not None:
        figures[name] = value


def note_facts(server: Server, figures: Figures, facts: dict[str, str]) -> None:
    """What moed says of itself; the other program says nothing that the tables name."""
    if isinstance(server, Moed):
        info, stats = server.server_info(), server.stats()
        for name in ("compute_backend", "io_backend", "preset", "policy", "predictor", "version"):
            facts[name] = getattr(info, name)
        figures["memory_budget_bytes"] = info.memory_budget_bytes
        figures["experts_in_cache"] = min(1.0, stats.cache_capacity_bytes / server.model_info().all_expert_bytes)


def check_rate(figures: Figures, limit: int | None) -> None:
    """Reads that pass the throttle by (done by threads outside the group) would be compared with reads that do not."""
    rate = figures.get("read_bytes_per_second", 0)
    if limit is not None and rate > 1.2 * limit:
        del figures["decode"]
        raise ServerError(f"read {rate / 1e6:.0f} MB/s under a limit of {limit / 1e6:.0f}")


@contextlib.contextmanager
def limits(cell: Cell, contender: Contender, bench: Bench, limit_bytes: int | None) -> Iterator[cgroup.Group | None]:
    with contextlib.ExitStack() as stack:
        if contender.read_ahead_kib is not None:
            stack.enter_context(bench.read_ahead.at(contender.read_ahead_kib))
        group = None
        if limit_bytes is not None:
            group = stack.enter_context(cgroup.group(limit_bytes, bench.read_ahead.device, DISKS[cell.disk]))
        yield group


def measure(server: Server, cell: Cell, texts: Texts, figures: Figures, facts: dict[str, str]) -> None:
    decode: Callable[[Server, Texts, Protocol, Figures], None]
    decode = measure_sessions if cell.protocol.sessions > 1 else measure_decode
    for part in (measure_first, measure_prefill, decode):
        part(server, texts, cell.protocol, figures)
    note_facts(server, figures, facts)
    check_rate(figures, DISKS[cell.disk])


def take_turn(cell: Cell, contender: Contender, turn: int, bench: Bench) -> Record:
    """With what was measured before the program failed, and why it did."""
    figures: Figures = {}
    facts = {"at": time.strftime("%Y-%m-%d %H:%M:%S")}
    failed, texts, files = "", Texts(bench.text_tokens, turn), bench.files[cell.format]
    for path in (files.store, files.gguf):
        disk.drop_from_cache(path)
    limit_bytes = cell.limit_bytes(files.bytes)
    note(figures, "limit_bytes", limit_bytes)
    with limits(cell, contender, bench, limit_bytes) as group:
        try:
            server = start(contender, cell, bench, limit_bytes, group)
            try:
                measure(server, cell, texts, figures, facts)
            finally:
                server.stop()
            note(figures, "peak_bytes", group.peak_bytes() if group else None)
        except ServerError as error:
            failed = str(error)
    return Record(Key("speed", cell.name, contender.name, turn), figures, facts, failed)
