"""Turns whose routing is recorded: what is played, and what could have been reached with it. docs/routing-traces.md has the
files."""

import hashlib
import json
import lzma
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tools.server_process import ServerError

from .. import CompareError
from ..disk import read_rate

READS_AT_ONCE = 4
# Of the simulated disk and model that are learned on: they decide how far ahead is guessed meanwhile, not what is learned of
# routing.
DISK_BYTES_PER_SECOND, LAYER_SECONDS = 3e9, 2.5e-3
GPT_OSS_20B: dict[str, Any] = {"layers": list(range(24)), "top_k": 4, "experts": 32}  # the shape of traces that do not say it


class Played(NamedTuple):
    """A request of a turn."""

    sequence: int  # of the record
    tokens: int  # of prompt and answer that were computed
    counted: int  # of them, the last ones


def _read(path: str) -> bytes:
    """The file, or PATH.xz."""
    try:
        with lzma.open(f"{path}.xz") if not os.path.exists(path) else open(path, "rb") as file:
            data: bytes = file.read()
            return data
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise CompareError(f"{path}: {error}") from None


class Recorded:
    def __init__(self, folder: str, bench: str):
        """`bench` is the program moe-bench."""
        if not os.path.isdir(folder):
            raise CompareError(f"--recorded-routing {folder}: no such directory")
        self.folder, self._bench = os.path.abspath(folder), bench
        index = _read(os.path.join(folder, "index.jsonl"))
        shape = any(os.path.exists(os.path.join(folder, name)) for name in ("shape.json", "shape.json.xz"))
        try:
            self.sequences: list[dict[str, Any]] = [json.loads(line) for line in index.splitlines() if line.strip()]
            self._shape = json.loads(_read(os.path.join(folder, "shape.json"))) if shape else GPT_OSS_20B
            self.lengths = [int(sequence["n"]) for sequence in self.sequences]
            self.experts = len(self._shape["layers"]) * int(self._shape["experts"])
        except (ValueError, KeyError, TypeError) as error:
            raise CompareError(f"--recorded-routing {folder}: index.jsonl or shape.json is damaged: {error!r}") from None
        self.hash = self._hash(index)

    def _files(self) -> Iterator[str]:
        names = (f"{name}{end}" for name in ("experts.u8", "experts.u16", "probs.u8", "shape.json") for end in ("", ".xz"))
        return (name for name in names if os.path.exists(os.path.join(self.folder, name)))

    def _hash(self, index: bytes) -> str:
        digest = hashlib.sha256(index)
        for name in self._files():
            with open(os.path.join(self.folder, name), "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()[:16]

    def kinds(self, least_tokens: int) -> tuple[list[tuple[str, list[int]]], list[tuple[str, list[int]]]]:
        """(to measure, to learn from): for each category the numbers of its sequences of so many tokens; every other category
        is learned from."""
        kinds: dict[str, list[int]] = {}
        for number, length in enumerate(self.lengths):
            if length >= least_tokens:
                kinds.setdefault(self.sequences[number].get("category", ""), []).append(number)
        if len(kinds) < 2:
            raise CompareError(
                f"--recorded-routing {self.folder}: {len(kinds)} categories have a sequence of at least {least_tokens} tokens; "
                "two are needed, one of them to learn from"
            )
        ordered = sorted(kinds.items())
        return ordered[::2], ordered[1::2]

    def _part(self, folder: str, parts: Iterable[tuple[int, int, int]]) -> str:
        """A trace of tokens [begin, end) of some sequences, in this order: the same files with another index. Returns the
        folder."""
        os.makedirs(folder)
        for name in self._files():
            os.symlink(os.path.join(self.folder, name), os.path.join(folder, name))
        with open(os.path.join(folder, "index.jsonl"), "w") as file:
            for number, begin, end in parts:
                line = dict(self.sequences[number])
                end = min(end, self.lengths[number])
                for name in ("token_ids", "tokens"):
                    if name in line:
                        line[name] = line[name][begin:end]
                line |= {"first": int(line["first"]) + begin, "n": end - begin}
                file.write(json.dumps(line) + "\n" if end > begin else "")
        return folder

    def _replay(self, *flags: str) -> Any:
        run = subprocess.run([self._bench, "replay", *flags, "--json"], capture_output=True, text=True)
        if run.returncode:
            raise ServerError(run.stderr.strip())
        return json.loads(run.stdout)

    def _budget(self, expert_bytes: int, capacity_bytes: int) -> list[str]:
        slots = min(max(capacity_bytes // expert_bytes, 1), self.experts)
        return ["--budget", repr(slots / self.experts), "--expert-bytes", str(expert_bytes)]

    def belady_hit_ratio(self, played: Sequence[Played], expert_bytes: int, capacity_bytes: int) -> float:
        """What the best eviction hits among the counted tokens, after those before them, read on demand."""
        before, counted = list[tuple[int, int, int]](), list[tuple[int, int, int]]()
        for one in played:
            first = 0 if counted else one.tokens - one.counted
            before.append((one.sequence, 0, first))
            if first < one.tokens:
                counted.append((one.sequence, first, one.tokens))
        with tempfile.TemporaryDirectory() as folder:
            traces = [
                "--trace-dir",
                self._part(f"{folder}/counted", counted),
                "--train-dir",
                self._part(f"{folder}/before", before),
            ]
            found = self._replay(*traces, "--policy", "belady", *self._budget(expert_bytes, capacity_bytes))
        return float(found["policies"][0]["hit_ratio"])

    def learn(
        self, sequences: Sequence[Sequence[int]], tokens: int, parts: tuple[str, str], store: str, budget: int,
        expert_bytes: int, capacity_bytes: int, path: str,
    ) -> int:  # fmt: skip
        """Replays, on a simulated disk, so many tokens of the sequences to learn from through a cache of that capacity, with
        that policy and predictor, and writes what they learned. Returns the tokens replayed, all there are at most."""
        chosen: list[tuple[int, int, int]] = []
        left = tokens
        for number in (kind[round_] for round_ in range(max(map(len, sequences))) for kind in sequences if round_ < len(kind)):
            chosen.append((number, 0, min(self.lengths[number], left)))
            left -= chosen[-1][2]
        times = ["--link-bytes-per-second", str(DISK_BYTES_PER_SECOND), "--layer-seconds", str(LAYER_SECONDS)]
        table = ["--table-bytes", str(min(budget // 128, 64 << 20))]  # as the daemon plans them
        with tempfile.TemporaryDirectory() as folder:
            trace = ["--trace-dir", self._part(f"{folder}/trace", chosen), "--policy", parts[0], "--predictor", parts[1]]
            kept = ["--store", store, "--learned-state", path]
            self._replay(*trace, *self._budget(expert_bytes, capacity_bytes), *times, *table, *kept)
        return tokens - left

    def disk_bytes_per_second(self, store: str, expert_bytes: int) -> float:
        """What the disk gives reads of an expert's size from the store, several at once, while nobody else reads."""
        return read_rate(store, block=max(expert_bytes // 4096, 1) * 4096, readers=READS_AT_ONCE, seconds=1)
