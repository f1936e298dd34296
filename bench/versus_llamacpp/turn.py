"""One turn of one contender: start the program, send the protocol's requests, write down what its client saw."""
import concurrent.futures
import contextlib
import time

import cgroup
import disk
import llama
import moed
from cells import DISKS
from process import ServerError
from stream import Request, joint_rate

PREFILL_TOKENS = 512
FIRST_PROMPT_TOKENS = 8


class Texts:
    """Pieces of one real text; the same for everybody in a turn, other ones in other turns."""

    def __init__(self, tokens, turn):
        if len(tokens) < 4 * PREFILL_TOKENS:
            raise ServerError(f"the text has {len(tokens)} tokens, at least {4 * PREFILL_TOKENS} are needed")
        self.seed = turn + 1
        self._tokens, self._at = tokens, turn * 2999

    def take(self, count):
        start = self._at % (len(self._tokens) - count)
        self._at += count + 101
        return self._tokens[start:start + count]


def start(contender, cell, bench, limit_bytes, group):
    made, protocol = bench.files[cell.format], cell.protocol
    if contender.program == "moed":
        return moed.running(bench.moed, made.store, contender.threads, protocol.context_tokens, protocol.sessions, limit_bytes, group)
    return llama.running(bench.llama, made.gguf, contender.threads, contender.repack, protocol.context_tokens, protocol.sessions,
                         group)


def measure_first(server, texts, protocol, record):
    answer = server.generate(Request(texts.take(FIRST_PROMPT_TOKENS), protocol.first_tokens))
    if not answer.times:
        raise ServerError("no token within 60 seconds of a cold start")
    record["first_token_seconds"] = answer.times[0] - server.process.started
    record["cold_decode"] = answer.rate(0)


def measure_prefill(server, texts, protocol, record):
    for _ in range(protocol.prefills):
        answer = server.generate(Request(texts.take(PREFILL_TOKENS), 1))
        record["prefill"] = PREFILL_TOKENS / answer.first_token_seconds if answer.times else None


def measure_decode(server, texts, protocol, record):
    """Counters are read at the first counted token and at the last that came, so they cover the same time as the rate."""
    marks = []

    def on_token(count):
        if count >= protocol.skipped_tokens + 1 and not marks:
            marks.append((time.monotonic(), server.counters()))
    request = Request(texts.take(protocol.prompt_tokens), protocol.skipped_tokens + protocol.counted_tokens + 1, texts.seed,
                      protocol.decode_seconds)
    answer = server.generate(request, on_token)
    rate = answer.rate(protocol.skipped_tokens)
    record["decode"], record["decode_tokens"] = rate, max(0, len(answer.times) - 1 - protocol.skipped_tokens)
    if rate is None:
        raise ServerError(f"{len(answer.times)} tokens within {protocol.decode_seconds:.0f} seconds: too few to count any")
    (began, before), after = marks[0], server.counters()
    change = {key: after[key] - before[key] for key in before}
    seconds = time.monotonic() - began
    record["read_bytes_per_token"] = change["read_bytes"] / record["decode_tokens"]
    record["read_bytes_per_second"] = change["read_bytes"] / seconds
    if change.get("hits", 0) + change.get("misses", 0):
        record["hit_ratio"] = change["hits"] / (change["hits"] + change["misses"])
        record["stall_share"] = change["stall_seconds"] / seconds


def measure_sessions(server, texts, protocol, record):
    """All at once with different texts, all at once with the same text and seed, then one alone."""
    count = protocol.sessions
    different = [texts.take(protocol.prompt_tokens) for _ in range(count)]

    def requests(prompts, seeds):
        return [Request(prompt, protocol.skipped_tokens + protocol.counted_tokens, seed, protocol.decode_seconds)
                for prompt, seed in zip(prompts, seeds)]
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        for key, sent in (("sessions_different", requests(different, range(count))),
                          ("sessions_same", requests(different[:1] * count, [texts.seed] * count))):
            record[key] = joint_rate(list(pool.map(server.generate, sent)))
    record["decode"] = server.generate(requests(different, [texts.seed])[0]).rate(protocol.skipped_tokens)


def check_rate(record, limit):
    """Reads that pass the throttle by (done by threads outside the group) would be compared with reads that do not."""
    rate = record.get("read_bytes_per_second")
    if limit is not None and rate is not None and rate > 1.2 * limit:
        record["decode"] = None
        raise ServerError(f"read {rate / 1e6:.0f} MB/s under a limit of {limit / 1e6:.0f}")


def take_turn(cell, contender, turn, bench):
    """The record of the turn; what went wrong with the program is in it as "failed"."""
    record = {"cell": cell.name, "contender": contender.name, "program": contender.program, "threads": contender.threads,
              "turn": turn, "at": time.strftime("%Y-%m-%d %H:%M:%S")}
    files = bench.files[cell.format]
    protocol = cell.protocol
    texts = Texts(bench.text_tokens, turn)
    for path in (files.store, files.gguf):
        disk.drop_from_cache(path)
    with contextlib.ExitStack() as stack:
        group = None
        if cell.share is not None:
            record["limit_bytes"] = cell.limit_bytes(files.bytes)
            group = stack.enter_context(cgroup.group(limit_bytes=record["limit_bytes"], device=bench.read_ahead.device,
                                                     read_bytes_per_second=DISKS[cell.disk]))
        if contender.read_ahead_kib is not None:
            stack.enter_context(bench.read_ahead.at(contender.read_ahead_kib))
        try:
            server = stack.enter_context(start(contender, cell, bench, record.get("limit_bytes"), group))
            if protocol.first_tokens:
                measure_first(server, texts, protocol, record)
            measure_prefill(server, texts, protocol, record)
            (measure_sessions if protocol.sessions > 1 else measure_decode)(server, texts, protocol, record)
            record.update(server.facts())
            check_rate(record, DISKS[cell.disk])
            if group is not None:
                record["peak_bytes"] = group.peak_bytes()
        except ServerError as error:
            record["failed"] = str(error)
    return record
