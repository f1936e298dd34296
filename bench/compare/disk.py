"""The disk that a file lies on: its page cache, its read-ahead, what it can be throttled to."""

import concurrent.futures
import contextlib
import ctypes
import mmap
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

from . import cgroup

_PAGE = mmap.PAGESIZE
_HUGE_PAGE = 2 << 20
# Reads a file from its begin: argv is PATH BYTES direct|buffered; prints bytes a second.
_READER = """
import mmap, os, sys, time
path, wanted, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
file = os.open(path, os.O_RDONLY | (os.O_DIRECT if how == "direct" else 0))
buffer = mmap.mmap(-1, 1 << 20)
start, got = time.monotonic(), 0
while got < wanted:
    count = os.preadv(file, [buffer], got)
    if count <= 0:
        break
    got += count
print(got / (time.monotonic() - start))
"""


def device_of(path: str) -> str:
    """ "major:minor" of the whole device that holds the file (not the partition: limits and read-ahead are the disk's)."""
    number = os.stat(path).st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    node = os.path.realpath(f"/sys/dev/block/{name}")
    if not os.path.isdir(node):
        raise cgroup.CgroupError(f"{path} lies on device {name}, which is no block device (overlay, tmpfs or network?)")
    if os.path.exists(os.path.join(node, "partition")):
        with open(os.path.join(os.path.dirname(node), "dev")) as file:
            name = file.read().strip()
    return name


def read_ahead_file(device: str) -> str:
    return f"/sys/dev/block/{device}/queue/read_ahead_kb"


def read_ahead_kib(device: str) -> int:
    with open(read_ahead_file(device)) as file:
        return int(file.read())


class ReadAhead:
    """Sets the device's read-ahead and puts the old one back: at the end, after a signal, and in the next run after a kill."""

    def __init__(self, device: str, note: str):
        self.device, self._note = device, note
        if os.path.exists(note):
            with open(note) as file:
                noted_device, kib = file.read().split()
            with contextlib.suppress(OSError), open(read_ahead_file(noted_device), "w") as file:
                file.write(kib)
            os.remove(note)
        self.default_kib = read_ahead_kib(device)
        self.writable = os.access(read_ahead_file(device), os.W_OK)

    @contextlib.contextmanager
    def at(self, kib: int) -> Iterator[None]:
        if kib == self.default_kib:
            yield
            return
        with open(self._note + ".new", "w") as file:
            file.write(f"{self.device} {self.default_kib}")
        os.replace(self._note + ".new", self._note)
        self._set(kib)
        try:
            yield
        finally:
            self._set(self.default_kib)
            os.remove(self._note)

    def _set(self, kib: int) -> None:
        with open(read_ahead_file(self.device), "w") as file:
            file.write(str(kib))


def cached_bytes(path: str) -> int:
    """How much of the file is in the page cache."""
    size = os.path.getsize(path)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    with open(path, "rb") as file:
        address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), f"mmap {path}")
    pages = (size + _PAGE - 1) // _PAGE
    resident = (ctypes.c_ubyte * pages)()
    try:
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), resident):
            raise OSError(ctypes.get_errno(), f"mincore {path}")
    finally:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    return (sum(bytes(resident)) if max(resident) <= 1 else sum(b & 1 for b in resident)) * _PAGE


def drop_from_cache(path: str) -> None:
    """Takes the file out of the page cache; a control group is charged only for pages that it brings in itself."""
    with open(path, "rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    left = cached_bytes(path)
    if left > os.path.getsize(path) // 100:
        with contextlib.suppress(OSError), open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("1")
        left = cached_bytes(path)
    if left > os.path.getsize(path) // 100:
        raise OSError(f"{path}: {left >> 20} MiB stay in the page cache; does another process map the file?")


def rate_in(group: cgroup.Group, path: str, how: str, wanted_bytes: int) -> float:
    """Bytes a second that one sequential reader in the group gets, in 1 MiB blocks."""
    drop_from_cache(path)
    command = [sys.executable, "-c", _READER, path, str(wanted_bytes), how]
    result = subprocess.run(group.command(command), capture_output=True, text=True)
    if result.returncode:
        raise OSError(f"reading {path} ({how}): {result.stderr.strip().splitlines()[-1]}")
    return float(result.stdout)


def check_throttle(path: str, bytes_per_second: int) -> None:
    """Raises CgroupError unless both direct and buffered reads are held to the rate here."""
    device = device_of(path)
    for how in ("direct", "buffered"):
        with cgroup.group(limit_bytes=256 << 20, device=device, read_bytes_per_second=bytes_per_second) as group:
            rate = rate_in(group, path, how, min(bytes_per_second * 3 // 2, os.path.getsize(path)))
        if not 0.5 * bytes_per_second < rate < 1.25 * bytes_per_second:
            raise cgroup.CgroupError(f"{how} reads came at {rate / 1e6:.0f} MB/s under a limit of {bytes_per_second / 1e6:.0f}")


def _buffer(size: int) -> memoryview:
    """In huge pages where there are any: pages of 4 KiB go to the disk in many segments, which can halve the rate."""
    memory = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    begin = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % _HUGE_PAGE
    block = memoryview(memory)[begin : begin + size]
    block[::_PAGE] = b"x" * len(block[::_PAGE])
    return block


def read_rate(path: str, block: int, readers: int, seconds: float = 1e9, most_bytes: int | None = None) -> float:
    """Bytes a second of direct reads of whole blocks anywhere in the file, so many at once."""
    places = [at * block for at in range(os.path.getsize(path) // block)]
    if len(places) < readers:
        raise OSError(f"{path} is too small to measure the disk with")
    random.Random(1).shuffle(places)
    places = places[: None if most_bytes is None else max(readers, most_bytes // block)]
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:  # a file system without
        file = os.open(path, os.O_RDONLY)
    buffers = [_buffer(block) for _ in range(readers)]
    begin = time.perf_counter()

    def read(reader: int) -> int:
        done = 0
        for place in places[reader::readers]:
            done += os.preadv(file, [buffers[reader]], place)
            if time.perf_counter() - begin > seconds:
                break
        return done

    try:
        with concurrent.futures.ThreadPoolExecutor(readers) as pool:
            total = sum(pool.map(read, range(readers)))
        return total / (time.perf_counter() - begin)
    finally:
        os.close(file)
