"""When requests come and how long they are: as a trace of a real service has it, or by chance.

Traces are files that others publish, plain or .xz. The Azure LLM inference traces are CSV with the columns TIMESTAMP,
ContextTokens and GeneratedTokens; Mooncake's are JSON lines with timestamp (milliseconds), input_length and output_length."""

import csv
import datetime
import io
import itertools
import json
import lzma
import pathlib
import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Arrival:
    gap: float  # seconds since the one before
    prompt_tokens: int
    new_tokens: int


class TraceError(Exception):
    """The file is none of these traces; the text says where."""


def _azure(text: str) -> Iterator[tuple[float, int, int]]:
    for row in csv.DictReader(io.StringIO(text)):
        time = datetime.datetime.fromisoformat(row["TIMESTAMP"].rstrip("Z")[:26])
        yield time.timestamp(), int(row["ContextTokens"]), int(row["GeneratedTokens"])


def _mooncake(text: str) -> Iterator[tuple[float, int, int]]:
    for line in text.splitlines():
        row = json.loads(line)
        yield row["timestamp"] / 1000, int(row["input_length"]), int(row["output_length"])


def read_trace(path: pathlib.Path) -> list[Arrival]:
    """Two or more; their times do not go back."""
    try:
        data = path.read_bytes()
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
        rows = list(_mooncake(text) if text.startswith("{") else _azure(text))
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path}: {type(error).__name__}: {error}") from None
    arrivals = [Arrival(after[0] - before[0], after[1], after[2]) for before, after in itertools.pairwise(rows)]
    if sum(each.gap for each in arrivals) <= 0 or any(each.gap < 0 for each in arrivals):
        raise TraceError(f"{path}: its times do not grow")
    return arrivals


def poisson(seed: int, count: int = 10_000) -> list[Arrival]:
    """Gaps of one second on average; lengths as of conversations, a few of them very long."""
    drawn = random.Random(seed)
    return [
        Arrival(drawn.expovariate(1), int(drawn.lognormvariate(7, 1)) + 1, int(drawn.lognormvariate(5, 1)) + 1)
        for _ in range(count)
    ]


def endless(arrivals: list[Arrival], rate: float, first: int) -> Iterator[Arrival]:
    """From the `first` one on, again and again, at so many a second on average."""
    scale = len(arrivals) / sum(each.gap for each in arrivals) / rate
    for index in itertools.count(first):
        each = arrivals[index % len(arrivals)]
        yield Arrival(each.gap * scale, each.prompt_tokens, each.new_tokens)
