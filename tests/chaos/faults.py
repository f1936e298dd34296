"""What tests/chaos/faults.cc does to a program that runs with it."""

import contextlib
import enum
import mmap
import pathlib
import struct
from collections.abc import Iterator

BYTES = 40
FAULT, VALUE, STRUCK, WALL, MAPPINGS = 0, 8, 16, 24, 32  # offsets of signed words of 64 bits


class Fault(enum.IntEnum):
    NONE = 0
    ERROR = 1  # value: errno
    END_OF_FILE = 2
    SHORT = 3
    LATE = 4  # value: nanoseconds
    TORN = 5
    FLIPPED = 6
    HELD = 7  # value: bytes of the smallest reads that are held


class Faults:
    """One set of words for one program."""

    def __init__(self, library: pathlib.Path, path: pathlib.Path):
        path.write_bytes(bytes(BYTES))
        self._file = path.open("r+b")
        self._words = mmap.mmap(self._file.fileno(), BYTES)
        self.refuse_mapping(-1)
        self.environment = {"LD_PRELOAD": str(library), "MOED_FAULTS": str(path)}

    def close(self) -> None:
        self._words.close()
        self._file.close()

    def _set(self, offset: int, value: int) -> None:
        struct.pack_into("<q", self._words, offset, value)

    def begin(self, fault: Fault, value: int = 0) -> None:
        """Every read from here on."""
        self._set(VALUE, value)
        self._set(STRUCK, 0)
        self._set(FAULT, fault)

    def end(self) -> None:
        self._set(FAULT, Fault.NONE)

    @contextlib.contextmanager
    def during(self, fault: Fault, value: int = 0) -> Iterator[None]:
        self.begin(fault, value)
        try:
            yield
        finally:
            self.end()

    def struck(self) -> int:
        """Reads that the fault concerned since it began."""
        return int(struct.unpack_from("<q", self._words, STRUCK)[0])

    def refuse_mapping(self, number: int) -> None:
        """Of anonymous memory; those before it, from here on, succeed. Below zero: none is refused."""
        self._set(MAPPINGS, number)

    def refused(self) -> bool:
        """Whether that mapping was asked for."""
        return int(struct.unpack_from("<q", self._words, MAPPINGS)[0]) < 0

    def set_wall_clock(self, seconds_ahead: int) -> None:
        self._set(WALL, seconds_ahead * 1_000_000_000)
