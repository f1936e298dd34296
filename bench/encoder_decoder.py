#!/usr/bin/env python3
"""EdgeMoE and SwapMoE on the kind of model they were published with: what presets read and lose of a Switch Transformer.

usage: encoder_decoder.py CHECKPOINT [--bin build/release/bin] [--work FOLDER] [--examples 100] [--scored 300] [--tables NAMES]

CHECKPOINT is what tools/training/train_switch.py makes. It is packed into FOLDER, moed-plan plans by calibration.jsonl, and moed
answers the first sources of heldout.jsonl greedily, one after the other, a daemon anew for each row. Accuracy is the share of
masked tokens that an answer has at their place. Another daemon scores the first targets, given their sources: nats are those of
their tokens, likeliest is the share of masked tokens that are the likeliest after the right ones before them. What FOLDER has
already is not made again: it belongs to one checkpoint. Needs Debian's protoc and its gRPC plugin, python3-grpcio,
python3-protobuf.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

if not __package__:  # run by its path
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])
    sys.path.insert(1, f"{sys.path[0]}/tools/training")

from infilled import FIRST_SENTINEL, SPANS, correct_tokens, spans_of, until_end
from tools.daemon import DEFAULT_BINARIES, ROOT, Daemon, PackError, pack, running
from tools.server_process import ServerError

STORES = {  # formats of experts, the reference first
    "widths": "f32,q8:channel,q4:channel,q2:channel",
    "int8": "f32,q8:channel",
    "int4": "f32,q4:channel",
    "int2": "f32,q2:channel",
    "narrow": "q8:channel,q4:channel,q2:channel",
    "whole-int4": "q4:channel",
}
TRUNKS = {"whole-int4": "q4:channel"}  # the other stores' are as trained
BUFFER = 10  # experts
AMPLE_BUDGET = 256 << 20  # every expert stays
FIXED = ("--kv-budget", "4MiB", "--kv-format", "f32", "--max-running", 1, "--queue-capacity", 1, "--max-kept-sessions", 1)
SERVED = (*FIXED, "--max-text-bytes", "16KiB", "--max-context", 128, "--prefill-chunk", 96, "--threads", 1)


@dataclass(frozen=True)
class Row:
    name: str
    store: str
    cache: int  # bytes of experts; 0: all have room
    flags: tuple[str, ...]
    pinned: int = 0  # experts of the decoder's first layer that has some


@dataclass(frozen=True)
class Score:
    nats: float  # a token of the targets
    likeliest: float  # of masked tokens


@dataclass(frozen=True)
class Result:
    accuracy: float
    same_answers: float  # as the reference width's
    hits: float  # of sources
    decode_hits: float
    bytes_a_token: float
    lowered: float  # a token, sources included, as the two below
    masked: float
    mass_lost: float
    rate: float  # tokens of answers a second, their first ones aside
    score: Score
    answers: list[list[int]]


def preset(name: str, **options: object) -> tuple[str, ...]:
    flags = ["--preset", name]
    if options:
        flags += ["--preset-options", ",".join(f"{key.replace('_', '-')}={value}" for key, value in options.items())]
    return tuple(flags)


class Bench:
    def __init__(self, arguments: argparse.Namespace, stubs: pathlib.Path) -> None:
        sys.path[:0] = [str(stubs), str(ROOT / "client" / "python")]
        self.binaries: pathlib.Path = arguments.bin
        self.checkpoint: pathlib.Path = arguments.checkpoint
        self.work: pathlib.Path = arguments.work
        held_out = (self.checkpoint / "heldout.jsonl").read_text().splitlines()
        self.examples: list[dict[str, list[int]]] = [json.loads(line) for line in held_out[: arguments.examples]]
        self.pairs: list[dict[str, list[int]]] = [json.loads(line) for line in held_out[: arguments.scored]]
        self.reference: list[list[int]] = []
        self.served = SERVED + (("--read-rate", arguments.read_rate) if arguments.read_rate else ())

    def store(self, name: str) -> pathlib.Path:
        store = self.work / f"{name}.moed"
        if not store.exists():
            trunk = TRUNKS.get(name, "f32")
            pack(self.binaries, self.checkpoint, store, "--expert-formats", STORES[name], "--trunk-format", trunk)
        return store

    def plan(self, name: str, store: str, *arguments: object) -> pathlib.Path:
        """A file of moed-plan, by the calibration's pairs."""
        plan = self.work / name
        if not plan.exists():
            pairs = self.checkpoint / "calibration.jsonl"
            command = map(
                str, (self.binaries / "moed-plan", arguments[0], self.store(store), pairs, "--out", plan, *arguments[1:])
            )
            run = subprocess.run(list(command), capture_output=True, text=True)
            if run.returncode:
                raise PackError(f"moed-plan {arguments[0]}: {run.stderr.strip()}")
        return plan

    def serving(self, row: Row, budget: int) -> contextlib.AbstractContextManager[Daemon]:
        return running(self.binaries, "--store", self.store(row.store), "--memory-budget", budget, *self.served, *row.flags)

    def pin(self, daemon: Daemon, row: Row) -> None:
        encoder = json.loads((self.checkpoint / "config.json").read_text())["num_layers"]
        layer = next(layer for layer in self.inspected(row.store)["moe_layers"] if layer >= encoder)
        daemon.moectl("pin", *(f"{layer}:{expert}" for expert in range(row.pinned)))

    def budget(self, row: Row) -> int:
        """The memory budget that leaves the row's cache so many bytes beside what its preset keeps."""
        budget = AMPLE_BUDGET
        while row.cache:
            with self.serving(row, budget) as daemon:
                parts = daemon.memory_parts()
            fitting = sum(parts.values()) - parts["cache"] + row.cache
            if fitting >= budget:
                break
            budget = fitting
        return budget

    def inspected(self, store: str) -> dict[str, Any]:
        command = [str(self.binaries / "moed-pack"), "inspect", str(self.store(store)), "--json"]
        found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return found

    def record_bytes(self, store: str) -> int:
        """Of an expert at the reference width."""
        return int(self.inspected(store)["precisions"][0]["record_bytes"])

    def experts(self, store: str) -> int:
        found = self.inspected(store)
        return int(found["experts_per_layer"]) * len(found["moe_layers"])

    def measure(self, row: Row) -> Result:
        budget = self.budget(row)
        with self.serving(row, budget) as daemon:
            score = self.score(daemon)
        with self.serving(row, budget) as daemon:
            if row.pinned:
                self.pin(daemon, row)
            return self.answers(daemon, score)

    def score(self, daemon: Daemon) -> Score:
        import grpc
        from moe.v1 import inference_pb2 as pb
        from moe.v1.inference_pb2_grpc import InferenceStub

        nats = 0.0
        tokens = likeliest = masked = 0
        with grpc.insecure_channel(daemon.address) as channel:
            stub = InferenceStub(channel)
            for pair in self.pairs:
                request = pb.ScoreRequest(top_logprobs=1)
                request.token_ids.ids[:] = pair["source"]
                request.target_token_ids.ids[:] = pair["target"]
                scored = stub.Score(request)
                nats += scored.nll
                tokens += len(pair["target"])
                for token, top in zip(pair["target"], scored.top, strict=True):
                    text = token >= FIRST_SENTINEL + SPANS
                    masked += text
                    likeliest += text and top.token_ids[0] == token
        return Score(nats / tokens, likeliest / masked)

    def answers(self, daemon: Daemon, score: Score) -> Result:
        from moed import Client

        answers: list[list[int]] = []
        sums: dict[str, float] = {}
        tokens = computed = 0
        with Client(daemon.address) as client:
            for example in self.examples:
                answer = client.generate(example["source"], temperature=0, max_new_tokens=len(example["target"]))
                answers.append(until_end(list(answer.token_ids)))
                statistics = answer.finish.stats
                of_answer = answer.finish.usage.completion_tokens
                tokens += of_answer
                computed += of_answer + len(example["source"])
                for name in ("bytes_read", "experts_lowered", "experts_masked", "decode_seconds"):
                    sums[name] = sums.get(name, 0) + getattr(statistics, name)
                sums["lost"] = sums.get("lost", 0) + statistics.gate_mass_lost * (of_answer + len(example["source"]))
        phases = daemon.json("stats", "--count", 1)["stats"]
        if not self.reference:
            self.reference = answers
        masked = sum(len(span) for example in self.examples for span in spans_of(example["target"]).values())
        right = sum(correct_tokens(said, example["target"]) for said, example in zip(answers, self.examples, strict=True))
        return Result(
            accuracy=right / masked,
            same_answers=sum(a == b for a, b in zip(answers, self.reference, strict=True)) / len(answers),
            hits=hit_ratio(phases["prefill"]),
            decode_hits=hit_ratio(phases["decode"]),
            bytes_a_token=sums["bytes_read"] / tokens,
            lowered=sums["experts_lowered"] / computed,
            masked=sums["experts_masked"] / computed,
            mass_lost=sums["lost"] / computed,
            rate=(tokens - len(answers)) / (sums["decode_seconds"] or 1),
            score=score,
            answers=answers,
        )


def hit_ratio(phase: dict[str, Any]) -> float:
    hits, misses = int(phase.get("expert_hits", 0)), int(phase.get("expert_misses", 0))
    return hits / max(1, hits + misses)


def planned_edgemoe(bench: Bench, store: str) -> tuple[tuple[str, ...], int]:
    """The preset with its files, and the bytes of ten experts at the planned widths."""
    widths = bench.plan(f"{store}.json", store, "widths", "--loss-percent", 2)
    paths = bench.plan(f"{store}.paths", store, "dictionary")
    size = BUFFER * json.loads(widths.read_text())["report"]["expert_bytes"] // bench.experts(store)
    return preset("edgemoe", widths=widths, paths=paths), size


def edgemoe_rows(bench: Bench) -> list[Row]:
    """A buffer as large as ten experts of the reference width, as the paper has it, and one of ten at the planned widths."""
    planned, _ = planned_edgemoe(bench, "widths")
    narrow, ten = planned_edgemoe(bench, "narrow")
    buffer = BUFFER * bench.record_bytes("widths")
    return [
        Row("IO-FREE", "widths", 0, preset("io-free")),
        Row("IO-QFREE (INT8)", "int8", 0, preset("io-qfree")),
        Row("IO-EXP", "widths", buffer, preset("io-exp")),
        Row("IO-QEXP (INT4)", "int4", buffer, preset("io-qexp")),
        Row("IO-QEXP (INT2)", "int2", buffer, preset("io-qexp")),
        # Beside the preloaded ones room to stream through, in which nothing stays until the next token.
        Row("STI (INT4)", "whole-int4", 2 * BUFFER * bench.record_bytes("whole-int4"), preset("sti"), pinned=BUFFER),
        Row("edgemoe, room of ten at FP32", "widths", buffer, planned),
        Row("edgemoe, ten at their widths", "narrow", ten, narrow),
        Row("the same without preload", "narrow", ten, (*narrow, "--predictor", "none")),
        Row("the same without dictionary", "narrow", ten, preset("edgemoe", widths=bench.work / "narrow.json")),
    ]


def eviction_rows(bench: Bench) -> list[Row]:
    """The paper's Figure 14: without preload, at the reference width, by room for experts."""
    paths = bench.plan("widths.paths", "widths", "dictionary")
    rows = []
    for experts in (5, 10, 20):
        for policy in ("edgemoe", "edgemoe-printed", "lfu", "lru", "fifo"):
            flags = [*preset("load-on-demand-lru"), "--policy", policy]
            if policy.startswith("edgemoe"):
                flags += ["--preset-options", f"paths={paths}"]
            rows.append(Row(f"{policy}, {experts}", "widths", experts * bench.record_bytes("widths"), tuple(flags)))
    return rows


def swapmoe_rows(bench: Bench) -> list[Row]:
    """Of all experts a quarter, a half and three quarters have a slot."""
    rows = []
    for share in (25, 50, 75):
        size = bench.experts("widths") * share // 100 * bench.record_bytes("widths")
        search = ("--tokens", 1500, "--allocations", 48, "--rounds", 4)
        slots = bench.plan(f"slots-{share}.json", "widths", "slots", "--budget", size, *search)
        rows += [
            Row(f"swapmoe, {share} %", "widths", size, preset("swapmoe", slots=slots)),
            Row(f"equal slots, {share} %", "widths", size, preset("swapmoe-equal")),
            Row(f"simple scheduling, {share} %", "widths", size, preset("swapmoe-tokens", slots=slots)),
            Row(f"pruning, {share} %", "widths", size, preset("swapmoe-pruning", slots=slots)),
            Row(f"on demand, {share} %", "widths", size, preset("load-on-demand-lru")),
        ]
    return rows


def other_rows(bench: Bench) -> list[Row]:
    """The others, and ours, beside EdgeMoE's buffer."""
    buffer = BUFFER * bench.record_bytes("int4")
    eap = preset("eap", paths=bench.plan("int4.paths", "int4", "dictionary"))
    presets = {"load-on-demand-lru": preset("load-on-demand-lru"), "hobbit": preset("hobbit"), "fate": preset("fate"), "eap": eap}
    return [Row(name, "int4", buffer, flags) for name, flags in (presets | {"auto": preset("auto")}).items()]


TABLES = {"edgemoe": edgemoe_rows, "evictions": eviction_rows, "swapmoe": swapmoe_rows, "others": other_rows}
HEADS = (
    "",
    "nats",
    "likeliest",
    "accuracy",
    "as the reference",
    "hits, sources",
    "hits, answers",
    "KB a token",
    "lowered a token",
    "masked",
    "gate mass lost",
)


def line(name: str, result: Result, rates: bool) -> str:
    shares = (result.score.likeliest, result.accuracy, result.same_answers, result.hits, result.decode_hits)
    cells = [name, f"{result.score.nats:.4f}", *(f"{share:.1%}" for share in shares), f"{result.bytes_a_token / 1000:.0f}"]
    cells += [f"{result.lowered:.2f}", f"{result.masked:.2f}", f"{result.mass_lost:.1%}"]
    if rates:
        cells.append(f"{result.rate:.0f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=DEFAULT_BINARIES)
    parser.add_argument("--work", type=pathlib.Path, help="folder of stores and plans (default: CHECKPOINT/bench)")
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--scored", type=int, default=300, help="pairs whose targets are scored")
    parser.add_argument("--rates", action="store_true", help="tokens a second beside: only where the machine does nothing else")
    parser.add_argument("--read-rate", help="of a slower disk, as moed's flag (90MB)")
    parser.add_argument("--tables", default=",".join(TABLES), help=f"of {', '.join(TABLES)} (default: all)")
    arguments = parser.parse_args()
    arguments.work = arguments.work or arguments.checkpoint / "bench"
    arguments.work.mkdir(parents=True, exist_ok=True)
    names = arguments.tables.split(",")
    if unknown := [name for name in names if name not in TABLES]:
        parser.error(f"--tables: {unknown[0]!r} is none of {', '.join(TABLES)}")
    with tempfile.TemporaryDirectory() as stubs:
        subprocess.run(["bash", ROOT / "client" / "python" / "generate_stubs.sh", stubs], check=True)
        try:
            bench = Bench(arguments, pathlib.Path(stubs))
            reference = bench.measure(Row("", "widths", 0, preset("io-free")))
            same = sum(said == example["answer"] for said, example in zip(reference.answers, bench.examples, strict=True))
            print(f"At full width {same} of {len(bench.examples)} answers are those of transformers, token by token.\n")
            for name in names:
                heads = (*HEADS, "tokens/s") if arguments.rates else HEADS
                print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
                for row in TABLES[name](bench):
                    try:
                        print(line(row.name, bench.measure(row), arguments.rates), flush=True)
                    except ServerError as error:
                        print(f"| {row.name} | refused: {str(error).splitlines()[-1]} |", flush=True)
        except (PackError, OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"encoder_decoder: {error}")


if __name__ == "__main__":
    main()
