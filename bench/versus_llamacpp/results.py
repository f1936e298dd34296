"""The journal: one JSON file with every turn and what was found out beside them, and what is computed from them."""

import dataclasses
import json
import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar


class JournalError(Exception):
    """The journal cannot be read; the text says what is wrong with it."""


@dataclass
class Turn:
    """One turn of one contender. None: not measured, or not to be measured."""

    cell: str
    contender: str
    program: str
    threads: int
    turn: int
    at: str
    build: str | None = None  # of moed
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    seconds: float | None = None  # of the turn
    first_token_seconds: float | None = None
    cold_decode: float | None = None  # this and the following: tokens a second
    prefill: float | None = None
    decode: float | None = None
    sessions_different: float | None = None
    sessions_same: float | None = None
    decode_tokens: int | None = None
    read_bytes_per_token: float | None = None
    read_bytes_per_second: float | None = None
    hit_ratio: float | None = None
    stall_share: float | None = None
    backend: str | None = None  # this and the following: what moed says of itself
    io_backend: str | None = None
    policy: str | None = None
    predictor: str | None = None
    version: str | None = None
    memory_budget_bytes: int | None = None
    experts_in_cache: float | None = None
    failed: str | None = None  # why the program could not finish the turn

    def metric(self, key: str) -> float | None:
        value: float | None = getattr(self, key)
        return value


@dataclass(frozen=True)
class Machine:
    cpu: str
    isa: list[str]
    processors: int
    memory_bytes: int
    kernel: str
    system: str
    device: str
    read_ahead_kib: int


@dataclass(frozen=True)
class FilePair:
    store: str
    store_bytes: int
    gguf: str
    gguf_bytes: int


@dataclass(frozen=True)
class Rates:
    """Bytes a second that were read before a cell was measured."""

    at: str
    disk: float
    memory: dict[str, float]  # by number of threads


@dataclass(frozen=True)
class BenchRates:
    """Tokens a second that llama-bench prints."""

    prefill: float
    decode: float


@dataclass(frozen=True)
class Summary:
    median: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Iterable[float | None]) -> "Summary | None":
        """Of those that are numbers; None when none is."""
        numbers = [value for value in values if value is not None]
        return Summary(statistics.median(numbers), min(numbers), max(numbers), len(numbers)) if numbers else None


class Best(NamedTuple):
    contender: str
    summary: Summary


Row = TypeVar("Row")


def _row(kind: type[Row], held: dict[str, Any]) -> Row:
    try:
        return kind(**held)
    except TypeError as error:
        raise JournalError(str(error)) from None


class Results:
    """Of the file `path`, where there is one."""

    def __init__(self, path: str):
        self.path = path
        self.machine: Machine | None = None
        self.versions: dict[str, str] = {}
        self.command = ""
        self.files: dict[str, FilePair] = {}  # by format
        self.not_possible: dict[str, str] = {}  # why, by cell
        self.llama_bench: dict[str, BenchRates] = {}
        self.rates: list[Rates] = []
        self.turns: list[Turn] = []
        if os.path.exists(path):
            self._load()

    def _load(self) -> None:
        try:
            with open(self.path) as file:
                data = json.load(file)
            self.machine = _row(Machine, data["machine"]) if data["machine"] else None
            self.versions, self.not_possible, self.command = data["versions"], data["not_possible"], data.get("command", "")
            self.files = {name: _row(FilePair, pair) for name, pair in data["files"].items()}
            self.llama_bench = {name: _row(BenchRates, rates) for name, rates in data["llama_bench"].items()}
            self.rates = [_row(Rates, rates) for rates in data["rates"]]
            self.turns = [_row(Turn, turn) for turn in data["turns"]]
        except (JournalError, KeyError, ValueError) as error:
            raise JournalError(f"{self.path}: {error}; say --fresh or another --json") from None

    def save(self) -> None:
        def plain(row: Any) -> dict[str, Any]:
            return {key: value for key, value in dataclasses.asdict(row).items() if value is not None}

        data = {
            "machine": plain(self.machine) if self.machine else {},
            "versions": self.versions,
            "files": {name: plain(pair) for name, pair in self.files.items()},
            "not_possible": self.not_possible,
            "llama_bench": {name: plain(rates) for name, rates in self.llama_bench.items()},
            "rates": [plain(rates) for rates in self.rates],
            "turns": [plain(turn) for turn in self.turns],
            "command": self.command,
        }
        partial = self.path + ".partial"
        with open(partial, "w") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
        os.replace(partial, self.path)

    def add(self, turn: Turn) -> None:
        self.turns.append(turn)
        self.save()

    def take_files(self, format_: str, pair: FilePair) -> bool:
        """What was measured with files of another size is forgotten; whether there was something."""
        noted = self.files.get(format_)
        stale = noted is not None and (noted.store_bytes, noted.gguf_bytes) != (pair.store_bytes, pair.gguf_bytes)
        if stale:
            self.turns = [turn for turn in self.turns if turn.cell.split("/")[0] != format_]
            self.llama_bench = {name: rates for name, rates in self.llama_bench.items() if name.split(",")[0] != format_}
        self.files[format_] = pair
        return stale

    def of(self, cell: str, contender: str | None = None, program: str | None = None) -> list[Turn]:
        return [
            turn
            for turn in self.turns
            if turn.cell == cell and contender in (None, turn.contender) and program in (None, turn.program)
        ]

    def has(self, cell: str, contender: str, turn: int) -> bool:
        return any(taken.turn == turn for taken in self.of(cell, contender))

    def cells(self) -> list[str]:
        return list(dict.fromkeys(turn.cell for turn in self.turns))

    def summary(self, cell: str, contender: str, metric: str) -> Summary | None:
        return Summary.of(turn.metric(metric) for turn in self.of(cell, contender))

    def summaries(self, cell: str, metric: str, program: str | None = None, threads: int | None = None) -> dict[str, Summary]:
        """By contender, of those that have a number."""
        contenders = dict.fromkeys(turn.contender for turn in self.of(cell, program=program) if threads in (None, turn.threads))
        found = {contender: self.summary(cell, contender, metric) for contender in contenders}
        return {contender: summary for contender, summary in found.items() if summary is not None}

    def best(self, cell: str, program: str, metric: str, smallest: bool = False, threads: int | None = None) -> Best | None:
        """The setting with the best median."""
        found = self.summaries(cell, metric, program, threads)
        if not found:
            return None
        contender = (min if smallest else max)(found, key=lambda name: found[name].median)
        return Best(contender, found[contender])


def ratio(ours: Summary, theirs: Summary, smaller_is_better: bool = False) -> tuple[float, float, float]:
    """How many times as good ours is, from the medians, and the widest it can be read: (ratio, lowest, highest)."""
    if smaller_is_better:
        return theirs.median / ours.median, theirs.low / ours.high, theirs.high / ours.low
    return ours.median / theirs.median, ours.low / theirs.high, ours.high / theirs.low
