"""The machine: its name, and how fast it reads memory and disk, measured here."""

import os
import platform
import re
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import disk
from ..journal import Figures

ISA = ("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimddp", "i8mm", "sve")
ARRAY_BYTES = 256 << 20
READ_BYTES = 1 << 30
READ_BLOCK = 4 << 20
READERS = 4


def _processor(info: str) -> str:
    """The processor's name in the text of /proc/cpuinfo."""
    name, family, model = (re.search(rf"^{field}\s*:\s*(.+)$", info, re.M) for field in ("model name", "cpu family", "model"))
    text = name.group(1) if name else platform.machine()
    return text + (f" (family {family.group(1)}, model {model.group(1)})" if family and model else "")


def describe(read_ahead: disk.ReadAhead) -> dict[str, Any]:
    """The machine whose files lie on that device."""
    with open("/proc/cpuinfo") as file:
        info = file.read()
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", info, re.M)
    return {
        "cpu": _processor(info),
        "isa": [name for name in ISA if flags and name in flags.group(1).split()],
        "processors": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "device": read_ahead.device,
        "read_ahead_kib": read_ahead.default_kib,
    }


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


def disk_read_rate(path: str) -> float:
    """Bytes a second of direct reads; the best of three."""
    best = 0.0
    for _ in range(3):
        disk.drop_from_cache(path)
        best = max(best, disk.read_rate(path, READ_BLOCK, READERS, most_bytes=READ_BYTES))
    return best


def measure_rates(path: str, thread_counts: Sequence[int]) -> Figures:
    """What virtual machines share with others changes while a run goes on, so this is asked before every cell."""
    return {"disk": disk_read_rate(path)} | {f"memory {count}": memory_read_rate(count) for count in thread_counts}
