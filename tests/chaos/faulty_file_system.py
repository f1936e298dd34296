"""A file system (FUSE) of one file, a store, whose reads go wrong as the shared words of tests/chaos/faults.py say. The kernel is
between it and the program: every way to read meets the faults, io_uring too.

    /usr/bin/python3 -m tests.chaos.faulty_file_system FOLDER STORE WORDS     # until it is unmounted; python3-fusepy"""

import mmap
import os
import pathlib
import stat
import struct
import sys
import time
from typing import Any

import fusepy

from tests.chaos.faults import BYTES, FAULT, STRUCK, VALUE, Fault

NAME = "store.moed"


class OneFile(fusepy.Operations):
    def __init__(self, store: pathlib.Path, words: pathlib.Path):
        self._file = os.open(store, os.O_RDONLY)
        with words.open("r+b") as file:
            self._words = mmap.mmap(file.fileno(), BYTES)

    def _word(self, offset: int) -> int:
        return int(struct.unpack_from("<q", self._words, offset)[0])

    def getattr(self, path: str, _fh: Any = None) -> dict[str, int]:
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if path != "/" + NAME:
            raise fusepy.FuseOSError(2)
        return {"st_mode": stat.S_IFREG | 0o644, "st_nlink": 1, "st_size": os.fstat(self._file).st_size}

    def readdir(self, _path: str, _fh: Any) -> list[str]:
        return [".", "..", NAME]

    def read(self, _path: str, size: int, offset: int, _fh: Any) -> bytes:
        fault, value = Fault(self._word(FAULT)), self._word(VALUE)
        if fault == Fault.NONE:
            return os.pread(self._file, size, offset)
        struct.pack_into("<q", self._words, STRUCK, self._word(STRUCK) + 1)
        if fault == Fault.ERROR:
            raise fusepy.FuseOSError(value)
        if fault == Fault.END_OF_FILE:
            return b""
        if fault == Fault.LATE:
            time.sleep(value / 1e9)
        while fault == Fault.HELD and self._word(FAULT) == Fault.HELD:
            time.sleep(0.001)
        read = bytearray(os.pread(self._file, size, offset))
        if fault == Fault.SHORT:
            return bytes(read[: max(4096, len(read) // 8192 * 4096)])  # of whole blocks, as O_DIRECT needs
        if fault == Fault.TORN:
            read[len(read) // 2 :] = bytes(len(read) - len(read) // 2)
        if fault == Fault.FLIPPED:
            read[len(read) // 2] ^= 0x10
        return bytes(read)


if __name__ == "__main__":
    folder, store, words = map(pathlib.Path, sys.argv[1:])
    fusepy.FUSE(OneFile(store, words), str(folder), foreground=True, nothreads=True, ro=True, direct_io=True, max_read=65536)
