#!/usr/bin/env python3
"""Measures the demo model with the real programs and prints the tables of README and docs/quality.md.

usage: measure_demo.py [--bin build/release/bin] [--calibration TEXT] cache|turns|quality|quantizers|kv

cache       hit ratio, bytes read and TPOT with 25, 50 and 100 % of the experts in memory, in turns (A B C A B C ...), medians
turns       TTFT of ten turns of a conversation, in a session and by a client that sends the whole text each time, medians
quality     perplexity on models/tales-qwen/heldout.txt of every weight format, against float32 transformers
quantizers  the same for experts of 8, 4, 3 and 2 bits made by every quantizer, trunk in bf16; those of gptq with --calibration
kv          the same for keys and values kept in every format, weights in bf16
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

if not __package__:  # run by its path
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from tools.daemon import DEFAULT_BINARIES, DEMO_CHECKPOINT, Daemon, PackError, pack_demo, running
from tools.server_process import ServerError

MIB = 1 << 20
PROMPTS = (
    "Once upon a time there was a little",
    "The old king said to his daughter",
    "In the middle of the forest stood",
    "It was a cold night and the",
)
SHARES = (0.25, 0.5, 1.0)  # of the experts in memory
TURNS = 5
CONVERSATION_TURNS, TURN_NEW_TOKENS = 10, 48
NEW_TOKENS = 96
CACHE_FLAGS = ("--kv-budget", "2MiB")
BUDGET_TOLERANCE_BYTES = 128 << 10
FORMATS = (  # of the experts, of the trunk
    *((experts, "bf16") for experts in ("bf16", "q8", "q4", "q2")),
    *((experts, "q8") for experts in ("q8", "q4", "q2")),
    ("q4", "q4"),
)
QUANTIZERS = (
    ("q8", "q8:channel"),
    ("q4", "q4:channel"),
    ("q4a", "q4a:hqq", "q4a:channel"),
    ("q3", "q3:hqq", "q3:channel"),
    ("q2", "q2:hqq", "q2:channel"),
    ("q2p",),
    ("q2s",),
)
CALIBRATION_TOKENS = "131072"
CALIBRATED = ("q4a:gptq", "q3:gptq", "q2:gptq", "q2p:gptq", "q2s:gptq")
KV_FORMATS = ("f32", "f16", "q8")


@dataclass(frozen=True)
class CacheTurn:
    hit_ratio: float
    tpot_seconds: float
    read_bytes_per_token: float


@dataclass(frozen=True)
class Golden:
    """What float32 transformers computed."""

    window: int
    tokens: int
    nll: float
    perplexity: float

    @staticmethod
    def read() -> "Golden":
        held = json.loads((DEMO_CHECKPOINT / "heldout.perplexity.json").read_text())
        return Golden(held["window"], held["tokens"], held["nll"], held["perplexity"])


def budget_for(binaries: pathlib.Path, store: pathlib.Path, cache_bytes: int) -> int:
    """The budget whose plan leaves `cache_bytes` for experts, or little more. The other parts follow the budget: what they take
    of an ample one is more than enough, what they take of that is nearly right."""
    budget = cache_bytes + 64 * MIB
    for _ in range(12):
        with running(binaries, "--store", store, "--memory-budget", budget, *CACHE_FLAGS) as daemon:
            parts = daemon.memory_parts()
        enough = cache_bytes + BUDGET_TOLERANCE_BYTES // 2 + sum(parts.values()) - parts["cache"]
        if parts["cache"] >= cache_bytes and budget - enough < BUDGET_TOLERANCE_BYTES:
            return budget
        budget = enough
    raise ServerError(f"no budget gives a cache of {cache_bytes} bytes; the last was {budget} with {parts}")


def all_expert_bytes(binaries: pathlib.Path, store: pathlib.Path) -> int:
    with running(binaries, "--store", store) as daemon:
        return int(daemon.json("info")["model"]["all_expert_bytes"])


def take_cache_turn(daemon: Daemon) -> CacheTurn:
    def generate(prompt: str) -> dict[str, Any]:
        sampling = ("--temperature", 0.7, "--seed", 3, "--ignore-eos")
        stats: dict[str, Any] = daemon.json("generate", "--prompt", prompt, "--max-new-tokens", NEW_TOKENS, *sampling)["stats"]
        return stats

    def all_read_bytes() -> int:
        return int(daemon.json("stats")["stats"]["bytes_read"])

    generate(PROMPTS[-1])  # fills the cache
    before = all_read_bytes()
    runs = [generate(prompt) for prompt in PROMPTS]
    hits, misses = (sum(run[key] for run in runs) for key in ("expert_hits", "expert_misses"))
    return CacheTurn(
        hit_ratio=hits / (hits + misses),
        tpot_seconds=statistics.median(run["tpot_seconds"] for run in runs),
        read_bytes_per_token=(all_read_bytes() - before) / (NEW_TOKENS * len(runs)),  # guesses too
    )


def measure_cache(binaries: pathlib.Path, folder: pathlib.Path) -> None:
    store = pack_demo(binaries, folder, "bf16", "bf16")
    experts = all_expert_bytes(binaries, store)
    budgets = {share: budget_for(binaries, store, int(experts * share)) for share in SHARES}
    turns: dict[float, list[CacheTurn]] = {share: [] for share in SHARES}
    for _ in range(TURNS):
        for share, budget in budgets.items():
            with running(binaries, "--store", store, "--memory-budget", budget, *CACHE_FLAGS) as daemon:
                turns[share].append(take_cache_turn(daemon))
    print("| experts in memory | budget | hit ratio | read per token | TPOT (lowest to highest turn) |\n|---|---|---|---|---|")
    for share, taken in turns.items():
        tpot = sorted(turn.tpot_seconds * 1e3 for turn in taken)
        print(
            f"| {share:.0%} | {budgets[share] / MIB:.1f} MiB | {statistics.median(turn.hit_ratio for turn in taken):.1%} | "
            f"{statistics.median(turn.read_bytes_per_token for turn in taken) / MIB:.2f} MiB | "
            f"{statistics.median(tpot):.2f} ms ({tpot[0]:.2f} to {tpot[-1]:.2f}) |"
        )


def take_conversation(daemon: Daemon, in_session: bool) -> list[tuple[int, float]]:
    """Of each turn the tokens of the whole prompt and TTFT."""
    flags = ("--max-new-tokens", TURN_NEW_TOKENS, "--temperature", 0.7, "--seed", 3, "--ignore-eos")
    session = ("--session", "s") if in_session else ()
    daemon.json("generate", "--prompt", "Once", *flags)  # fills the cache
    turns, whole = [], ""
    for turn in range(CONVERSATION_TURNS):
        said = PROMPTS[turn % len(PROMPTS)] + " "
        whole += said
        answer = daemon.json("generate", "--prompt", said if in_session else whole, *session, *flags)
        whole += answer["text"]
        turns.append((answer["usage"]["prompt_tokens"], answer["stats"]["ttft_seconds"]))
    return turns


def measure_turns(binaries: pathlib.Path, folder: pathlib.Path) -> None:
    store = pack_demo(binaries, folder, "bf16", "bf16")
    taken: dict[bool, list[list[tuple[int, float]]]] = {True: [], False: []}
    for _ in range(TURNS):
        for in_session, conversations in taken.items():
            with running(binaries, "--store", store, "--memory-budget", "64MiB", "--max-context", 1024) as daemon:
                conversations.append(take_conversation(daemon, in_session))
    print("| turn | tokens of its prompt | TTFT in a session | TTFT of the whole text | times |\n|---|---|---|---|---|")
    for turn in range(CONVERSATION_TURNS):
        session, whole = (
            statistics.median(conversation[turn][1] for conversation in taken[in_session]) * 1e3 for in_session in (True, False)
        )
        print(f"| {turn + 1} | {taken[False][0][turn][0]} | {session:.2f} ms | {whole:.2f} ms | {whole / session:.2f} |")


def scored(binaries: pathlib.Path, golden: Golden, store: pathlib.Path, *flags: str) -> str:
    """Columns: perplexity, against transformers, nats a token more."""
    with running(binaries, "--store", store, "--memory-budget", "64MiB", *flags) as daemon:
        score = daemon.json("score", "--file", DEMO_CHECKPOINT / "heldout.txt", "--window", golden.window)
    assert score["tokens"] == golden.tokens, "moed and transformers cut the text differently"
    more = (score["nll"] - golden.nll) / golden.tokens
    return f"{score['perplexity']:.4f} | {score['perplexity'] / golden.perplexity - 1:+.3%} | {more:+.5f}"


def collect_moments(binaries: pathlib.Path, folder: pathlib.Path, text: pathlib.Path) -> pathlib.Path:
    """What the experts of the bf16 store read of the beginning of the text."""
    store = pack_demo(binaries, folder, "bf16", "bf16")
    moments = folder / "text.moments"
    subprocess.run(
        [binaries / "moed-plan", "moments", store, text, "--tokens", CALIBRATION_TOKENS, "--out", moments],
        check=True,
        capture_output=True,
    )
    return moments


def print_quality(binaries: pathlib.Path, folder: pathlib.Path, formats: Sequence[tuple[str, str]], *flags: str) -> None:
    golden = Golden.read()
    print("| experts | trunk | store | perplexity | against transformers | nats a token more |\n|---|---|---|---|---|---|")
    print(f"| float32 transformers | | | {golden.perplexity:.4f} | | |")
    for experts, trunk in formats:
        store = pack_demo(binaries, folder, experts, trunk, *flags)
        size = store.stat().st_size / MIB
        print(f"| {experts} | {trunk} | {size:.1f} MiB | {scored(binaries, golden, store)} |", flush=True)


def measure_quality(binaries: pathlib.Path, folder: pathlib.Path) -> None:
    print_quality(binaries, folder, FORMATS)


def measure_quantizers(binaries: pathlib.Path, folder: pathlib.Path, text: pathlib.Path | None = None) -> None:
    print_quality(binaries, folder, [(experts, "bf16") for of_format in QUANTIZERS for experts in of_format])
    if text is not None:
        moments = collect_moments(binaries, folder, text)
        print_quality(binaries, folder, [(experts, "bf16") for experts in CALIBRATED], "--calibration", str(moments))


def measure_kv(binaries: pathlib.Path, folder: pathlib.Path) -> None:
    golden = Golden.read()
    store = pack_demo(binaries, folder, "bf16", "bf16")
    print("| keys and values | perplexity | against transformers | nats a token more |\n|---|---|---|---|")
    for kv_format in KV_FORMATS:
        print(f"| {kv_format} | {scored(binaries, golden, store, '--kv-format', kv_format)} |", flush=True)


TABLES = {
    "cache": measure_cache,
    "turns": measure_turns,
    "quality": measure_quality,
    "quantizers": measure_quantizers,
    "kv": measure_kv,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--bin", type=pathlib.Path, default=DEFAULT_BINARIES)
    parser.add_argument("--calibration", type=pathlib.Path, help="a text for the rows of gptq in the table quantizers")
    options = parser.parse_args()
    if options.calibration is not None and options.table != "quantizers":
        parser.error("--calibration is for the table quantizers")
    with tempfile.TemporaryDirectory() as folder:
        try:
            if options.calibration is not None:
                measure_quantizers(options.bin, pathlib.Path(folder), options.calibration)
            else:
                TABLES[options.table](options.bin, pathlib.Path(folder))
        except (PackError, ServerError, OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"measure_demo: {error}")


if __name__ == "__main__":
    main()
