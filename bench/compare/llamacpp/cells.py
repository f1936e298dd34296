"""What is compared: cells, and in each cell the settings of both programs that contend."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..runner import rotated

MEBIBYTE = 1 << 20
DISKS: dict[str, int | None] = {"native": None, "sata": 550_000_000, "sd": 90_000_000}  # read limit, bytes a second
SMALL_READ_AHEADS_KIB = (32, 128, 512)


@dataclass(frozen=True)
class Protocol:
    """What one turn does after the start of a program. Both programs get the same texts in the same order."""

    prompt_tokens: int  # of the decode request
    skipped_tokens: int  # of its answer, before counting begins
    counted_tokens: int  # at most so many are counted
    decode_seconds: float  # the client hangs up after that, prompt included
    first_tokens: int = 16  # answer to the first request of a cold program, whose prompt has 8 tokens; 0 = no such request
    prefills: int = 1  # requests with 512 tokens; the last one is what counts
    sessions: int = 1  # more: that many requests at once, different texts and then the same text
    context_tokens: int = 640  # of all sessions together


IN_RAM = Protocol(prompt_tokens=64, skipped_tokens=8, counted_tokens=96, decode_seconds=30, prefills=2)
LIMITED = Protocol(prompt_tokens=64, skipped_tokens=16, counted_tokens=64, decode_seconds=40)
# 60 seconds do not read much from such disks: short prompts, and no other request than the one that counts.
SLOW_DISK = Protocol(prompt_tokens=16, skipped_tokens=8, counted_tokens=64, decode_seconds=40, first_tokens=0, prefills=0)
SLOWEST_DISK = Protocol(prompt_tokens=8, skipped_tokens=3, counted_tokens=64, decode_seconds=50, first_tokens=0, prefills=0)
EIGHT = Protocol(
    prompt_tokens=64,
    skipped_tokens=8,
    counted_tokens=64,
    decode_seconds=60,
    first_tokens=0,
    prefills=0,
    sessions=8,
    context_tokens=1280,
)


@dataclass(frozen=True)
class Contender:
    program: str  # "moed" or "llama.cpp"
    threads: int
    repack: bool = False
    read_ahead_kib: int | None = None  # None: the device's own

    @property
    def name(self) -> str:
        parts = [self.program, f"{self.threads} thread{'s' if self.threads > 1 else ''}"]
        if self.program == "llama.cpp":
            parts.append("repack" if self.repack else "no repack")
            parts += [f"read-ahead {self.read_ahead_kib} KiB"] if self.read_ahead_kib is not None else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Cell:
    format: str  # "q4", "q8", or "gguf": as a file that people have holds it
    share: int | None  # memory limit in percent of the file; None = everything in RAM
    disk: str  # of DISKS
    protocol: Protocol
    contenders: list[Contender] = field(compare=False, default_factory=list)

    @property
    def name(self) -> str:
        where = "ram" if self.share is None else f"{self.share}/{self.disk}"
        return f"{self.format}/{where}{'/eight' if self.protocol.sessions > 1 else ''}"

    def only(self, pattern: str) -> "Cell":
        """This cell with the contenders whose line, "q4/25/native: moed, 2 threads", has the pattern in it."""
        return replace(self, contenders=[c for c in self.contenders if pattern in f"{self.name}: {c.name}"])

    def limit_bytes(self, file_bytes: int) -> int | None:
        """A whole number of MiB, so that both versions of control groups take it as it is."""
        return None if self.share is None else file_bytes * self.share // 100 // MEBIBYTE * MEBIBYTE


def tried_read_aheads(default_kib: int, writable: bool) -> list[int]:
    """Under limits, KiB: the device's own, and the small ones where it can be set."""
    return sorted({*SMALL_READ_AHEADS_KIB, default_kib}) if writable else [default_kib]


def contenders(limited: bool, threads: Sequence[int], read_aheads: Sequence[int]) -> Iterator[Contender]:
    """All settings. Repacked weights lie in memory beside the file, so under a limit only the file as it is can be mapped."""
    for count in threads:
        yield Contender("moed", count)
        if limited:
            yield from (Contender("llama.cpp", count, False, kib) for kib in read_aheads)
        else:
            yield from (Contender("llama.cpp", count, repack) for repack in (True, False))


def all_cells(formats: Sequence[str], threads: Sequence[int], read_aheads: Sequence[int]) -> Iterator[Cell]:
    def cell(format_: str, share: int | None, disk: str, protocol: Protocol, counts: Sequence[int] = threads) -> Cell:
        return Cell(format_, share, disk, protocol, list(contenders(share is not None, counts, read_aheads)))

    for format_ in formats:
        yield cell(format_, None, "native", IN_RAM)
        for share in (75, 50, 25) if format_ == "q4" else (50, 25):
            yield cell(format_, share, "native", LIMITED)
    if "q4" in formats:  # what follows asks about disk and batches, not about the format
        for disk, protocol in (("sata", SLOW_DISK), ("sd", SLOWEST_DISK)):
            for share in (50, 25):
                yield cell("q4", share, disk, protocol)
        yield cell("q4", None, "native", EIGHT, threads[-1:])
        yield cell("q4", 50, "native", EIGHT, threads[-1:])


QUICK = ("q4/ram", "q4/50/native", "q4/25/native", "q4/25/sata", "gguf/ram", "gguf/25/native")


def best_settings(cells: Iterable[Cell], threads: Sequence[int]) -> Iterator[Cell]:
    """The cells with moed at all threads, and of llama.cpp in RAM only the setting that has been its best: repacked, all threads.
    Which is its best under a limit the first turn shows."""
    for cell in cells:
        yield replace(cell, contenders=[c for c in cell.contenders if _has_best_setting(c, cell, threads)])


def _has_best_setting(contender: Contender, cell: Cell, threads: Sequence[int]) -> bool:
    if contender.program == "moed":
        return contender.threads == threads[-1]
    return cell.share is not None or (contender.repack and contender.threads == threads[-1])


def quick_cells(formats: Sequence[str], threads: Sequence[int], read_aheads: Sequence[int]) -> Iterator[Cell]:
    """Some cells, with those settings."""
    return best_settings((cell for cell in all_cells(formats, threads, read_aheads) if cell.name in QUICK), threads)


def next_turn(cell: Cell, turn: int, decode_rates: Mapping[str, float], each_thread_count: bool = True) -> list[Contender]:
    """Who takes part in a turn, one after the other: all in the first; then both programs at each number of threads (or only at
    their best one), with the setting that has been the fastest there so far. `decode_rates` is {contender name: median tokens a
    second}."""
    if turn == 0:
        return cell.contenders
    chosen = []
    for contender in cell.contenders:
        rivals = [
            c
            for c in cell.contenders
            if c.program == contender.program and (not each_thread_count or c.threads == contender.threads)
        ]
        if contender == max(rivals, key=lambda c: decode_rates.get(c.name, 0)):
            chosen.append(contender)
    return rotated(chosen, turn)
