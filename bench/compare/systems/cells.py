"""The cells in which all contenders run: how much cache on which disk, and how a turn goes there."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import CompareError


@dataclass(frozen=True)
class Protocol:
    """Slower disks get shorter prompts and answers, so that a turn keeps its time. A cell takes at most turns x seconds = 60."""

    prompt_tokens: int
    requests: int  # in a turn, one after the other
    warm_up_tokens: int  # answer to a first request that does not count; 0: none
    skipped_tokens: int  # of an answer, before counting begins
    counted_tokens: int  # of an answer, at most
    turns: int
    seconds: float  # of a turn, at most


NATIVE = Protocol(64, 2, 8, 4, 48, 3, 10)
SLOW = Protocol(8, 1, 0, 2, 32, 3, 20)
SLOWEST = Protocol(2, 1, 0, 1, 16, 1, 60)
QUICK_NATIVE = Protocol(64, 1, 8, 2, 24, 2, 6)
QUICK_SLOW = Protocol(8, 1, 0, 2, 16, 2, 9)
# Long enough that the cache knows the conversations: half of a turn's time, at most, goes into a first one.
BUDGET = Protocol(64, 1, 128, 4, 96, 3, 40)


@dataclass(frozen=True)
class Cell:
    share: int  # percent of the expert bytes at the reference width that the cache may hold; 0: `budget` says
    disk: str  # "native", "550 MB/s", "90 MB/s"
    protocol: Protocol
    read_rate: int = 0  # bytes a second; 0: what the disk gives
    budget: int = 0  # --memory-budget; 0: the share says

    @property
    def name(self) -> str:
        return f"{f'{self.budget // 10**6} MB' if self.budget else f'{self.share} %'}, {self.disk}"

    def native(self) -> "Cell":
        return dataclasses.replace(self, disk="native", read_rate=0)


def on_slow(rate: int, protocol: Protocol) -> Cell:
    return Cell(25, f"{rate // 10**6} MB/s", protocol, rate)


ALL = [Cell(share, "native", NATIVE) for share in (10, 25, 50, 75, 100)]
ALL += [on_slow(550_000_000, SLOW), on_slow(90_000_000, SLOWEST)]
QUICK = [Cell(25, "native", QUICK_NATIVE), on_slow(550_000_000, QUICK_SLOW)]

UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def parse_bytes(flag: str, text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(\w*)", text)
    if not found or found[2] not in UNITS:
        raise CompareError(f'{flag} "{text}" is no number of bytes; allowed are numbers like 4096, 8MiB or 1.5GB')
    return int(float(found[1]) * UNITS[found[2]] + 0.5)


def _keep(flag: str, wanted: Sequence[str], name: Callable[[Cell], str], cells: list[Cell]) -> list[Cell]:
    known = list(dict.fromkeys(map(name, cells)))
    for one in wanted:
        if one not in known:
            raise CompareError(f"{flag}: no cell has {one}; known are {', '.join(known)}")
    return [cell for cell in cells if not wanted or name(cell) in wanted]


def choose(
    quick: bool = False,
    budget: int = 0,  # one cell of this memory budget on the native disk instead of all others
    recorded: bool = False,  # the routing is: prompts are one token, the number of a sequence
    shares: Sequence[str] = (),
    disks: Sequence[str] = (),  # "native", "550", "90"
    seconds: float = 0,  # of a turn on the native disk, slower ones in proportion; 0: the cells' own
    turns: int = 0,  # 0: the cells' own
    counted_tokens: int = 0,  # of a turn, at most; 0: the cells' own
) -> list[Cell]:
    if budget and (quick or shares or disks):
        raise CompareError("--memory-budget is one cell on the native disk: without --quick, --shares and --disks")
    cells = [Cell(0, "native", BUDGET, budget=budget)] if budget else QUICK if quick else ALL
    factor = seconds / cells[0].protocol.seconds if seconds else 1
    cells = _keep("--shares", shares, lambda cell: str(cell.share), cells)
    cells = _keep("--disks", disks, lambda cell: cell.disk.split()[0], cells)

    def adapted(protocol: Protocol) -> Protocol:
        return dataclasses.replace(
            protocol,
            prompt_tokens=1 if recorded else protocol.prompt_tokens,
            counted_tokens=-(-counted_tokens // protocol.requests) if counted_tokens else protocol.counted_tokens,
            turns=turns or protocol.turns,
            seconds=protocol.seconds * factor,
        )

    return [dataclasses.replace(cell, protocol=adapted(cell.protocol)) for cell in cells]
