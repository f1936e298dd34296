"""The journal: finished measurements, one JSON line each, so that a run goes on where it was interrupted.

The first line is what decides the figures (programs, files, texts, protocol): another run does not go on with it. What a line
says is checked: the file may have been cut off, damaged, or be another one.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from . import CompareError
from .spread import Spread

REMEDY = "; delete it or name another --journal"

Figures = dict[str, float]  # a figure that could not be measured is absent
Run = Mapping[str, Any]


class Key(NamedTuple):
    kind: str  # "speed", "quality", "learn", ...
    cell: str
    contender: str
    turn: int = 0


@dataclass(frozen=True)
class Record:
    key: Key
    figures: Figures = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    not_run: str = ""  # why there are no figures, or not all

    def line(self) -> str:
        data: dict[str, Any] = {**self.key._asdict(), "figures": self.figures}
        data |= {"facts": self.facts} if self.facts else {}
        data |= {"not_run": self.not_run} if self.not_run else {}
        return json.dumps(data)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode(), parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _checked(data: dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = data.get(name, default)
    if type(value) is not kind:
        raise ValueError(f"{name!r} is no {kind.__name__}")
    return value


def parse_record(line: bytes) -> Record:
    """ValueError where the line is none of a journal's."""
    data = _parsed(line)
    if type(data) is not dict or set(data) - {*Key._fields, "figures", "facts", "not_run"}:
        raise ValueError("it is no record")
    key = Key(*(_checked(data, name, int if name == "turn" else str) for name in Key._fields))
    if key.turn < 0:
        raise ValueError(f"turn {key.turn}")
    figures = _checked(data, "figures", dict)
    facts = _checked(data, "facts", dict, {})
    for name, value in figures.items():
        if type(value) not in (int, float) or abs(value) > 1e300:  # infinities, too
            raise ValueError(f"{name!r} is no figure")
    if any(type(value) is not str for value in facts.values()):
        raise ValueError("facts are texts")
    return Record(key, {name: float(value) for name, value in figures.items()}, facts, _checked(data, "not_run", str, ""))


def differences(there: Run, here: Run) -> str:
    """'version is "0.1" there and "0.2" here; cells differ': every part that is not the same."""

    def text(run: Run, name: str) -> str | None:
        return "absent" if name not in run else None if isinstance(run[name], (list, dict)) else json.dumps(run[name])

    found = []
    for name in dict.fromkeys([*here, *there]):
        if name in there and name in here and there[name] == here[name]:
            continue
        stored, now = text(there, name), text(here, name)
        found.append(f"{name} differ" if stored is None or now is None else f"{name} is {stored} there and {now} here")
    return "; ".join(found)


class Journal:
    def __init__(self, path: str, run: Run | None):
        """Reads what is there and goes on with it; `run` None: whoever wrote it. A last line that was cut off is dropped.
        CompareError names the line that is damaged, or what differs from the run that wrote it."""
        self.path = path
        self._records: dict[Key, Record] = {}
        text = b""
        if os.path.exists(path):
            with open(path, "rb") as file:
                text = file.read()
        self.run: Run = json.loads(json.dumps(run or {}))
        first = json.dumps({"run": self.run}) + "\n"
        *lines, rest = text.split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                if number > 1:
                    self._keep(parse_record(line))
                else:
                    self.run = self._checked_run(line, run is None)
            except ValueError as error:
                raise CompareError(f"{path}, line {number}: {error}{REMEDY}") from None
        if not lines and (run is None or not first.encode().startswith(text)):
            raise CompareError(f"{path} is no journal: it has no whole line{REMEDY}")
        if rest and run is not None:
            os.truncate(path, len(text) - len(rest))
        if not lines:
            self._append(first)

    def _checked_run(self, line: bytes, any_run: bool) -> Run:
        data = _parsed(line)
        if type(data) is not dict or set(data) != {"run"} or type(data["run"]) is not dict:
            raise ValueError("it is no first line of a journal")
        different = "" if any_run else differences(data["run"], self.run)
        if different:
            raise ValueError(f"it belongs to another run: {different}")
        stored: Run = data["run"]
        return stored

    def _append(self, line: str) -> None:
        try:
            with open(self.path, "a") as file:
                file.write(line)
        except OSError as error:
            raise CompareError(f"{self.path}: cannot be written: {error.strerror}") from None

    def _keep(self, record: Record) -> None:
        self._records[record.key] = record

    def add(self, record: Record) -> None:
        """Figures that are no numbers are left out: JSON cannot say them."""
        figures = {name: float(value) for name, value in record.figures.items() if math.isfinite(value)}
        record = Record(record.key, figures, record.facts, record.not_run)
        self._append(record.line() + "\n")
        self._keep(record)

    def find(self, key: Key) -> Record | None:
        return self._records.get(key)

    def records(self, kind: str, cell: str | None = None, contender: str | None = None) -> list[Record]:
        """In the order in which they were written, those of the given names alone."""
        wanted = (kind, cell, contender)
        return [record for key, record in self._records.items() if all(w in (None, k) for w, k in zip(wanted, key, strict=False))]

    def spread(self, cell: str, contender: str, figure: str) -> Spread | None:
        """Over the turns of a contender in a cell."""
        return Spread.of(turn.figures.get(figure) for turn in self.records("speed", cell, contender))

    def ratio(self, cell: str, ours: str, theirs: str, figure: str) -> Spread | None:
        """Turn by turn: both were measured at about the same time."""
        ratios = []
        for turn in self.records("speed", cell, ours):
            other = self.find(turn.key._replace(contender=theirs))
            if other is not None and figure in turn.figures and other.figures.get(figure):
                ratios.append(turn.figures[figure] / other.figures[figure])
        return Spread.of(ratios)
