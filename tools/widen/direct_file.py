"""A file written at the disk's rate: past the page cache, one buffer on its way to the disk while the other is filled."""

import errno
import fcntl
import mmap
import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

BUFFER_BYTES = 8 << 20
BLOCK_BYTES = 4096  # O_DIRECT takes only multiples of it
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL


class DirectFile:
    """A new file, synced to the disk when the `with` block ends well; `direct` is false where the file system has no O_DIRECT."""

    def __init__(self, path: str):
        self.path = path
        self.direct = True
        try:
            self.descriptor = os.open(path, FLAGS | os.O_DIRECT, 0o666)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self.direct = False
            if os.path.lexists(path):  # Linux creates the file before it refuses O_DIRECT
                os.remove(path)
            self.descriptor = os.open(path, FLAGS, 0o666)
        self.buffers = [mmap.mmap(-1, BUFFER_BYTES) for _ in range(2)]
        self.filled = 0  # bytes of buffers[0]
        self.writer = ThreadPoolExecutor(max_workers=1)
        self.writing: Future[None] | None = None

    def write(self, data: bytes | NDArray[Any]) -> None:
        rest = np.frombuffer(data, np.uint8)
        while rest.size:
            count = min(rest.size, BUFFER_BYTES - self.filled)
            np.frombuffer(self.buffers[0], np.uint8)[self.filled : self.filled + count] = rest[:count]
            self.filled += count
            rest = rest[count:]
            if self.filled == BUFFER_BYTES:
                self._send(BUFFER_BYTES)

    def _send(self, count: int) -> None:
        self._wait()
        self.writing = self.writer.submit(self._write_all, memoryview(self.buffers[0])[:count])
        self.buffers.reverse()
        self.filled = 0

    def _write_all(self, view: memoryview) -> None:
        try:
            while view:
                view = view[os.write(self.descriptor, view) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None

    def _wait(self) -> None:
        if self.writing is not None:
            self.writing.result()

    def _finish(self) -> None:
        rest = bytes(self.buffers[0][: self.filled])
        blocks = self.filled // BLOCK_BYTES * BLOCK_BYTES
        self._send(blocks)
        self._wait()
        fcntl.fcntl(self.descriptor, fcntl.F_SETFL, fcntl.fcntl(self.descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)
        self._write_all(memoryview(rest)[blocks:])
        os.fsync(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        try:
            if failure is None:
                self._finish()
        finally:
            self.writer.shutdown()
            os.close(self.descriptor)
