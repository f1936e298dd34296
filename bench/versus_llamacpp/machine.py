"""The machine: its name, and how fast it reads memory and disk, measured here."""

import concurrent.futures
import ctypes
import mmap
import os
import platform
import re
import threading
import time
from collections.abc import Sequence

import numpy as np

from . import disk
from .results import Machine, Rates

ISA = ("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimddp", "i8mm", "sve")
ARRAY_BYTES = 256 << 20
READ_BYTES = 1 << 30
READ_BLOCK = 4 << 20
HUGE_PAGE = 2 << 20
READERS = 4


def _processor(info: str) -> str:
    """The processor's name in the text of /proc/cpuinfo."""
    name, family, model = (re.search(rf"^{field}\s*:\s*(.+)$", info, re.M) for field in ("model name", "cpu family", "model"))
    text = name.group(1) if name else platform.machine()
    return text + (f" (family {family.group(1)}, model {model.group(1)})" if family and model else "")


def describe(read_ahead: disk.ReadAhead) -> Machine:
    """The machine whose files lie on that device."""
    with open("/proc/cpuinfo") as file:
        info = file.read()
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", info, re.M)
    return Machine(
        cpu=_processor(info),
        isa=[name for name in ISA if flags and name in flags.group(1).split()],
        processors=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        kernel=platform.release(),
        system=platform.platform(),
        device=read_ahead.device,
        read_ahead_kib=read_ahead.default_kib,
    )


def memory_read_rate(threads: int) -> float:
    """Bytes a second: every thread ORs the 64-bit words of an array of its own; the best of five."""
    arrays = [np.ones(ARRAY_BYTES // 8, np.uint64) for _ in range(threads)]
    best = 0.0
    for _ in range(5):
        workers = [threading.Thread(target=np.bitwise_or.reduce, args=(array,)) for array in arrays]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        best = max(best, threads * ARRAY_BYTES / (time.perf_counter() - start))
    return best


def _buffer() -> memoryview:
    """A block in huge pages where there are any: pages of 4 KiB go to the disk in many segments, which can halve the rate."""
    memory = mmap.mmap(-1, READ_BLOCK + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    begin = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % HUGE_PAGE
    block = memoryview(memory)[begin : begin + READ_BLOCK]
    block[:: mmap.PAGESIZE] = b"x" * (READ_BLOCK // mmap.PAGESIZE)
    return block


def _read_part(file: int, block: memoryview, begin: int, end: int) -> None:
    for at in range(begin, end, READ_BLOCK):
        os.preadv(file, [block], at)


def disk_read_rate(path: str) -> float:
    """Bytes a second of direct reads, 4 readers with blocks of 4 MiB; the best of three."""
    wanted = min(READ_BYTES, os.path.getsize(path)) // (READERS * READ_BLOCK) * READ_BLOCK
    if wanted == 0:
        raise OSError(f"{path} is too small to measure the disk with")
    best, blocks = 0.0, [_buffer() for _ in range(READERS)]
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        for _ in range(3):
            disk.drop_from_cache(path)
            start = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
                list(pool.map(lambda part: _read_part(file, blocks[part], part * wanted, (part + 1) * wanted), range(READERS)))
            best = max(best, READERS * wanted / (time.perf_counter() - start))
    finally:
        os.close(file)
    return best


def measure_rates(path: str, thread_counts: Sequence[int]) -> Rates:
    """What virtual machines share with others changes while a run goes on, so this is asked before every cell."""
    return Rates(
        at=time.strftime("%Y-%m-%d %H:%M:%S"),
        disk=disk_read_rate(path),
        memory={str(count): memory_read_rate(count) for count in thread_counts},
    )
