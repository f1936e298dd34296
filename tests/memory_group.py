"""A cgroup with a memory limit, made for one test."""

import contextlib
import pathlib
import re
import tempfile
import unittest
from collections.abc import Iterator

GROUPS = pathlib.Path("/sys/fs/cgroup")
LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")  # of version 2, of version 1


class MemoryGroup:
    def __init__(self, folder: pathlib.Path):
        self._folder = folder

    def command(self, *command: object) -> list[str]:
        """What runs the command inside."""
        return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._folder / "cgroup.procs"), *map(str, command)]

    def kills(self) -> int:
        """Processes that the kernel ended for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(FileNotFoundError):
                found = re.search(r"^oom_kill (\d+)$", (self._folder / name).read_text(), re.M)
                assert found, name
                return int(found.group(1))
        raise AssertionError(f"{self._folder} counts no kills")


def _parents() -> Iterator[pathlib.Path]:
    """This process's groups with the memory controller, and the roots above them."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            root = GROUPS / "memory" if controllers else GROUPS
            yield from (root / group.lstrip("/"), root)


def _make(parent: pathlib.Path, limit_bytes: int) -> pathlib.Path | None:
    """None where it may not be made."""
    try:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="moed-test-", dir=parent))
    except OSError:
        return None
    limits = [folder / name for name in LIMIT_FILES if (folder / name).exists()]
    try:
        for limit in limits:
            limit.write_text(str(limit_bytes))
            return folder
    except OSError:
        pass
    folder.rmdir()
    return None


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """Skips the test where this user may make none."""
    made = (_make(parent, limit_bytes) for parent in _parents() if (parent / "cgroup.procs").exists())
    folder = next((folder for folder in made if folder), None)
    if folder is None:
        raise unittest.SkipTest("no cgroup with a memory limit may be made here")
    try:
        yield MemoryGroup(folder)
    finally:
        folder.rmdir()
