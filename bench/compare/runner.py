"""Measures what a journal lacks, one after the other, and says how long the rest will take."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tools.server_process import ServerError

from . import CompareError, Say
from .journal import Figures, Journal, Key, Record

One = TypeVar("One")


def rotated(contenders: Sequence[One], turn: int) -> list[One]:
    """Another one begins each turn: a disk or a machine that grows slower meanwhile favours nobody."""
    first = turn % len(contenders) if contenders else 0
    return [*contenders[first:], *contenders[:first]]


@dataclass(frozen=True)
class Unit:
    """One thing to measure. `measure` gives the figures, or a record of its own; ServerError: why it could not run."""

    key: Key
    measure: Callable[[], Figures | Record]
    seconds: float  # that it may take
    not_run: Callable[[], str] = lambda: ""  # known without trying


def time_text(seconds: float) -> str:
    whole = int(seconds + 0.5)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


class Runner:
    """The rest takes as long as the measurements of its kind and cell took, before there is one as long as they may."""

    def __init__(self, journal: Journal, say: Say, text: Callable[[Record], str], stop_after: float = 0):
        self._journal, self._say, self._text, self._stop_after = journal, say, text, stop_after
        self._took: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._seconds = 0.0

    def _left(self, units: Sequence[Unit]) -> list[Unit]:
        return [unit for unit in units if self._journal.find(unit.key) is None]

    def _forecast(self, units: Sequence[Unit]) -> str:
        seconds = 0.0
        for unit in self._left(units):
            took = self._took[unit.key[:2]]
            if not unit.not_run():
                seconds += sum(took) / len(took) if took else unit.seconds
        return time_text(seconds)

    def run(self, units: Sequence[Unit]) -> None:
        self._say(f"{len(units)} measurements, {len(self._left(units))} of them left: at most {self._forecast(units)}")
        for number, unit in enumerate(units, 1):
            if self._journal.find(unit.key) is not None:
                continue
            if self._stop_after and self._seconds > self._stop_after:
                raise CompareError("--stop-after: the same command goes on")
            record = self._measured(unit)
            self._journal.add(record)
            outcome = f"not run: {record.not_run[:400]}" if record.not_run else self._text(record)
            kind, cell, contender, turn = unit.key
            where = f"{number} of {len(units)}, about {self._forecast(units)} left"
            self._say(f"[{where}] {cell}, {contender}, {kind} {turn + 1}: {outcome}")

    def _measured(self, unit: Unit) -> Record:
        known = unit.not_run()
        if known:
            return Record(unit.key, not_run=known)
        begin = time.monotonic()
        try:
            found = unit.measure()
        except ServerError as error:
            return Record(unit.key, not_run=str(error))
        took = time.monotonic() - begin
        self._seconds += took
        self._took[unit.key[:2]].append(took)
        return found if isinstance(found, Record) else Record(unit.key, found)
