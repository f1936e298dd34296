"""One turn of one contender: a fresh daemon, prompts, and what its client and its counters saw."""

import os
import time
from collections import defaultdict
from collections.abc import Sequence

from tools.server_process import ServerError

from ..energy import EnergyMeter
from ..journal import Figures
from ..moed import Moed
from ..server import Counters, Request, Watched, watch
from .bench import Bench
from .cells import Cell, Protocol
from .contenders import Contender
from .recorded import Played

LEAST_COUNTED_TOKENS = 2
MORE_SECONDS = 120  # that a turn may take beyond its protocol's to count so many
REPLAYED_TOKENS_PER_SECOND = 100  # of learning from a record, about
LEARNING_TOKENS = 64  # of prompts and of answers


class Sums(defaultdict[str, float]):
    """Over the requests of a turn."""

    def __init__(self) -> None:
        super().__init__(float)

    def take(self, watched: Watched) -> None:
        answer, stats = watched.answer, watched.answer.stats
        if not answer.times:
            return
        every = answer.prompt_tokens + len(answer.times) - 1
        self["prompt_tokens"] += answer.prompt_tokens
        self["tokens"] += every
        if stats is not None:
            self["lowered"] += stats.experts_lowered
            self["skipped"] += stats.experts_skipped
            self["masked"] += stats.experts_masked
            self["mass_lost"] += stats.gate_mass_lost * every
        self["prefill_seconds"] += answer.first_token_seconds
        for name in ("prefill_hits", "prefill_lookups"):
            self[name] += watched.whole[name]
        # Tokens that a busy client saw all at once, or before it had read the counters, have no rate.
        if watched.seconds > 0 and watched.counted["decode_lookups"] > 0:
            self["decode_tokens"] += watched.tokens
            self["decode_seconds"] += watched.seconds
            self["counted_seconds"] += watched.counted_seconds
            for name in ("expert_bytes", "busy_seconds", "decode_stall_seconds", "decode_hits", "decode_lookups", "joules"):
                self[name] += watched.counted[name]

    def figures(self) -> Figures:
        ratios = {
            "prefill_tokens_per_second": ("prompt_tokens", "prefill_seconds"),
            "prefill_hit_ratio": ("prefill_hits", "prefill_lookups"),
            "lowered_per_token": ("lowered", "tokens"),
            "skipped_per_token": ("skipped", "tokens"),
            "masked_per_token": ("masked", "tokens"),
            "gate_mass_lost": ("mass_lost", "tokens"),
            "decode_tokens_per_second": ("decode_tokens", "decode_seconds"),
            "bytes_per_token": ("expert_bytes", "decode_tokens"),
            "stall_share": ("decode_stall_seconds", "counted_seconds"),
            "disk_busy_share": ("busy_seconds", "counted_seconds"),
            "read_bytes_per_second": ("expert_bytes", "busy_seconds"),
            "decode_hit_ratio": ("decode_hits", "decode_lookups"),
        } | ({"joules_per_token": ("joules", "decode_tokens")} if self["joules"] > 0 else {})
        found: Figures = {name: self[part] / self[whole] for name, (part, whole) in ratios.items() if self[whole] > 0}
        return found | {"decode_tokens": self["decode_tokens"]}


def measure_requests(
    bench: Bench, contender: Contender, protocol: Protocol, turn: int, server: Moed
) -> tuple[Sums, list[Played]]:
    """One request after the other, those of the protocol within its seconds, then further ones, each with twice the time, until
    enough tokens were counted."""
    energy, sums, played = EnergyMeter(), Sums(), list[Played]()
    warm_up = 1 if protocol.warm_up_tokens else 0
    requests = warm_up + protocol.requests
    start, deadline = time.monotonic(), protocol.seconds + MORE_SECONDS
    limit, number = 0.0, 0

    def counters() -> Counters:
        return server.counters() | {"joules": energy.joules()}

    while number < requests or sums["decode_tokens"] < LEAST_COUNTED_TOKENS:
        passed = time.monotonic() - start
        left = protocol.seconds - passed
        if passed > deadline:
            raise ServerError(
                f"only {sums['decode_tokens']:.0f} of at least {LEAST_COUNTED_TOKENS} tokens were counted within {deadline:.0f} s"
            )
        if sums["decode_tokens"] >= LEAST_COUNTED_TOKENS and left <= 0.1:
            break
        within = number < requests and left > 0.1
        limit = left / (requests - number) if within else min(2 * limit, deadline - passed)
        counts, index = number >= warm_up, turn * requests + number
        prompt = bench.prompts[index % len(bench.prompts)].prompt(protocol.prompt_tokens, index)
        tokens = protocol.skipped_tokens + 1 + protocol.counted_tokens if counts else protocol.warm_up_tokens
        request = Request(prompt, tokens, index + 1, limit, contender.asks())
        watched = watch(server, request, protocol.skipped_tokens, counters)
        if counts:
            sums.take(watched)
        if watched.answer.times:
            computed = len(prompt) + len(watched.answer.times) - 1
            played.append(Played(prompt[0], computed, watched.tokens if counts else 0))
        number += 1
    return sums, played


def measure_turn(bench: Bench, contender: Contender, cell: Cell, turn: int) -> Figures:
    """docs/systems.md says what each figure is. ServerError with the daemon's reason when the contender cannot run here."""
    disk = 0.0
    recorded, expert_bytes = bench.recorded, 0
    if recorded is not None:
        expert_bytes = bench.reference_expert_bytes // recorded.experts
        disk = recorded.disk_bytes_per_second(bench.store, expert_bytes)
    with bench.start(contender, cell) as server:
        exact = contender.fidelity == "exact" or (not contender.fidelity and server.server_info().fidelity == "exact")
        sums, played = measure_requests(bench, contender, cell.protocol, turn, server)
        capacity = server.stats().cache_capacity_bytes
        peak = server.process.memory_bytes("VmHWM")
    figures = sums.figures()
    figures |= {"cache_share": capacity / bench.reference_expert_bytes, "peak_resident_bytes": peak, "exact": float(exact)}
    if recorded is not None:
        for name in ("prefill_tokens_per_second", "prefill_hit_ratio"):  # prompts are one token
            figures.pop(name, None)
        figures["disk_bytes_per_second"] = disk
        figures["belady_hit_ratio"] = recorded.belady_hit_ratio(played, expert_bytes, capacity)
        figures["bound_share"] = bound_share(figures)
    return figures


def bound_share(figures: Figures) -> float:
    """Share of the rate at which reading alone, or computing alone, would take the whole time, whichever is slower."""
    disk = max(figures["disk_bytes_per_second"], figures.get("read_bytes_per_second", 0))
    reading = figures.get("bytes_per_token", 0) * figures.get("decode_tokens_per_second", 0) / disk if disk else 0
    return max(reading, 1 - figures.get("stall_share", 0))


def learn(bench: Bench, contender: Contender, cell: Cell, seconds: float) -> Figures:
    """Serves other texts for that long on the native disk and keeps what the contender learned, for its turns in cells of this
    share."""
    path = bench.learned_path(contender, cell.share)
    os.makedirs(bench.learned_folder, exist_ok=True)
    part = path + ".part"
    if os.path.exists(part):
        os.remove(part)
    fresh = Contender(contender.preset, contender.parts, contender.options, fidelity=contender.fidelity)
    begin = time.monotonic()
    with bench.start(fresh, cell.native(), "--learned-state", part) as server:
        if bench.recorded is not None:
            info, capacity = server.server_info(), server.stats().cache_capacity_bytes
        else:
            tokens = _serve(bench, fresh, server, seconds)
    if bench.recorded is not None:
        tokens = bench.recorded.learn(
            [kind.ids for kind in bench.learning],
            round(seconds * REPLAYED_TOKENS_PER_SECOND),
            (info.policy, info.predictor),
            bench.store,
            bench.budgets[cell.share],
            bench.reference_expert_bytes // bench.recorded.experts,
            capacity,
            part,
        )
    took = time.monotonic() - begin
    try:
        os.replace(part, path)  # which the daemon wrote at its end
    except OSError as error:
        raise ServerError(f"the daemon left nothing that it learned in {part}: {error.strerror}") from None
    return {"learned_tokens": tokens, "learned_seconds": took}


def _serve(bench: Bench, contender: Contender, server: Moed, seconds: float) -> int:
    tokens, number, end = 0, 0, time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        prompt: Sequence[int] = bench.learning[number % len(bench.learning)].prompt(LEARNING_TOKENS, number)
        number += 1
        tokens += len(server.generate(Request(prompt, LEARNING_TOKENS, number, max(left, 0.1), contender.asks())).times)
    return tokens
