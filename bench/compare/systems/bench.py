"""What every measurement needs, made once by a daemon that only looks: texts, the model, the budgets; and the daemon of a
contender."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tools.server_process import ServerError

from .. import CompareError
from ..moed import BESIDE_BUDGET_BYTES, Moed, fingerprint
from .cells import Cell
from .choices import Question, cut
from .contenders import Contender, Given, Known, options_of
from .recorded import Recorded

REFERENCE = Contender("load-on-demand-lru")
EQUAL_SLOTS = Contender("swapmoe-equal")  # serves without a plan of slots
BUDGET_ROUNDS = 8  # the fixed parts change a little with the budget
MOST_TEXT_BYTES = 1 << 20  # of one kind: a request's limit
LEAST_TOKENS = 4
STRIDE = 2999
MAX_CONTEXT = 256


class Kind(NamedTuple):
    """Texts of one kind as token ids, from which prompts are cut."""

    name: str
    ids: list[int]

    def prompt(self, tokens: int, index: int) -> list[int]:
        """Piece `index` of so many ids; other indices give other pieces."""
        count = min(len(self.ids), tokens)
        begin = index * STRIDE % (len(self.ids) - count + 1)
        return self.ids[begin : begin + count]


def split_for_learning(kinds: Sequence[Kind]) -> tuple[list[Kind], list[Kind]]:
    """(first half of every kind, to learn from; second half)."""
    halves = [len(kind.ids) // 2 for kind in kinds]
    parts = list(zip(kinds, halves, strict=True))
    return [Kind(k.name, k.ids[:half]) for k, half in parts], [Kind(k.name, k.ids[half:]) for k, half in parts]


def hash_of(what: Any) -> str:
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def read_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise CompareError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > MOST_TEXT_BYTES:
        data = data[: data.rfind(b"\n", 0, MOST_TEXT_BYTES) + 1]
    text = data.decode(errors="replace")
    if not text:
        raise CompareError(f"{path}: no text")
    return text


def read_kinds(server: Moed, path: str) -> list[Kind]:
    """Of a file, or of a folder whose files are one kind each."""
    files = [path]
    if os.path.isdir(path):
        files = [file for file in (os.path.join(path, name) for name in sorted(os.listdir(path))) if os.path.isfile(file)]
    kinds = [Kind(os.path.basename(file), server.tokenize(read_text(file))) for file in files]
    for kind in kinds:
        if len(kind.ids) < LEAST_TOKENS:
            raise CompareError(f"{path}: {kind.name} gives {len(kind.ids)} tokens, at least {LEAST_TOKENS} are needed")
    if not kinds:
        raise CompareError(f"{path}: no file in it")
    return kinds


@dataclass(frozen=True)
class Texts:
    """What is asked: paths, and how much of the text that is scored."""

    prompts: str
    learning: str  # "": the first half of the prompts
    quality: str
    quality_tokens: int
    choices: int  # questions


@dataclass
class Bench:
    program: str  # moed
    store: str
    flags: Sequence[str]  # of every daemon
    known: Known
    options: list[Given]
    learned_folder: str  # what contenders learned before their first turn
    recorded: Recorded | None = None  # prompts are then numbers of its sequences. None: the model routes itself
    prompts: list[Kind] = field(default_factory=list)
    learning: list[Kind] = field(default_factory=list)  # other texts than the prompts
    quality_ids: list[int] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    budgets: dict[int, int] = field(default_factory=dict)  # --memory-budget by share
    program_hash: str = ""
    model: Any = None  # moe.v1.ModelInfo
    version: str = ""

    @property
    def reference_expert_bytes(self) -> int:
        return int(self.model.all_expert_bytes)

    def learned_path(self, contender: Contender, share: int) -> str:
        """Where a contender's --learned-state is that every turn begins with a copy of."""
        return os.path.join(self.learned_folder, f"{contender.name.replace('/', '_')}-{share}.state")

    def start(self, contender: Contender, cell: Cell, *more: str) -> Moed:
        """The daemon of a contender in a cell."""
        flags = contender.flags(options_of(self.known, contender, self.options, cell.share))
        flags += ["--store", self.store, "--prompt-lookup", "off", "--max-running", "1", "--max-context", str(MAX_CONTEXT)]
        flags += ["--memory-budget", str(self.budgets[cell.share])]
        if self.recorded is not None:
            flags += ["--recorded-routing", self.recorded.folder]
        if cell.read_rate:
            flags += ["--read-rate", str(cell.read_rate)]
        if contender.learned:
            learned, copy = self.learned_path(contender, cell.share), os.path.join(self.learned_folder, "turn.state")
            try:
                shutil.copyfile(learned, copy)
            except OSError as error:
                raise CompareError(
                    f"{learned}: {error.strerror}; delete the journal, or name another one, to learn again"
                ) from None
            flags += ["--learned-state", copy]
        return Moed(self.program, [*flags, *more, *self.flags])

    def prepare(self, cells: Iterable[Cell], texts: Texts) -> None:
        """Model, texts (but where the routing is recorded), and for every share the budget with which load-on-demand-lru has
        that share of the reference experts as cache: the budget of all contenders. A cell's own budget is taken."""
        if not os.path.exists(self.store):
            raise CompareError(f"{self.store}: there is no such store")
        self.program_hash = fingerprint(self.program)
        for cell in {cell.share: cell.native() for cell in reversed(list(cells))}.values():
            # Holds everything: the model is there to look at.
            self.budgets[cell.share] = os.path.getsize(self.store) + BESIDE_BUDGET_BYTES
            try:
                if self.model is None:
                    self._look(cell, texts)
                if cell.budget:
                    self.budgets[cell.share] = cell.budget
                else:
                    self._find_budget(cell)
            except ServerError as error:
                raise CompareError(str(error)) from None

    def records_of_slots(self, cell: Cell, *more: str) -> int:
        """What the cache of presets with slots holds: another one than the reference's, from which prompts borrow scratch."""
        with self.start(EQUAL_SLOTS, cell, *more) as server:
            cache = sum(part.bytes for part in server.server_info().memory if part.part == "cache")
        return int(cache // self.model.expert_bytes)

    def _look(self, cell: Cell, texts: Texts) -> None:
        with self.start(REFERENCE, cell) as server:
            self.model, self.version = server.model_info(), server.server_info().version
            if self.recorded is not None:
                return
            self.prompts = read_kinds(server, texts.prompts)
            if texts.learning:
                self.learning = read_kinds(server, texts.learning)
            else:
                self.learning, self.prompts = split_for_learning(self.prompts)
            quality = server.tokenize(read_text(texts.quality))
            self.quality_ids = quality[: texts.quality_tokens]
            if len(self.quality_ids) < 2:
                raise CompareError(f"{texts.quality}: at least 2 tokens are needed")
            self.questions = cut(quality, texts.choices, texts.quality)

    def _find_budget(self, cell: Cell) -> None:
        wanted = self.reference_expert_bytes // 100 * cell.share
        slack = wanted // 64
        for _ in range(BUDGET_ROUNDS):
            with self.start(REFERENCE, cell) as server:
                right = wanted + sum(part.bytes for part in server.server_info().memory if part.part != "cache")
            if right <= self.budgets[cell.share] <= right + 2 * slack:
                break
            self.budgets[cell.share] = right + slack
