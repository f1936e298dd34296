"""A file written at the disk's rate: past the page cache, one buffer on its way to the disk while the other is filled."""
import errno
import fcntl
import mmap
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

BUFFER_BYTES = 8 << 20
BLOCK_BYTES = 4096  # O_DIRECT takes only multiples of it
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL


class DirectFile:
    """A new file, synced to the disk when the `with` block ends well; `direct` is false where the file system has no O_DIRECT."""

    def __init__(self, path):
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
        self.writing = None

    def write(self, data):
        data = np.frombuffer(data, np.uint8)
        while data.size:
            count = min(data.size, BUFFER_BYTES - self.filled)
            np.frombuffer(self.buffers[0], np.uint8)[self.filled:self.filled + count] = data[:count]
            self.filled += count
            data = data[count:]
            if self.filled == BUFFER_BYTES:
                self._send(BUFFER_BYTES)

    def _send(self, count):
        self._wait()
        self.writing = self.writer.submit(self._write_all, memoryview(self.buffers[0])[:count])
        self.buffers.reverse()
        self.filled = 0

    def _write_all(self, view):
        try:
            while view:
                view = view[os.write(self.descriptor, view):]
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None

    def _wait(self):
        if self.writing is not None:
            self.writing.result()

    def _finish(self):
        rest = bytes(self.buffers[0][:self.filled])
        blocks = self.filled // BLOCK_BYTES * BLOCK_BYTES
        self._send(blocks)
        self._wait()
        fcntl.fcntl(self.descriptor, fcntl.F_SETFL, fcntl.fcntl(self.descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)
        self._write_all(memoryview(rest)[blocks:])
        os.fsync(self.descriptor)

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        try:
            if failure is None:
                self._finish()
        finally:
            self.writer.shutdown()
            os.close(self.descriptor)
