"""A control group with a limit on memory (page cache included) and on what is read from one disk; version 1 and version 2."""

import contextlib
import os
import shlex
import time
from collections.abc import Iterator, Sequence

from . import CompareError

# Controller -> version -> file names.
LIMIT = {"v1": "memory.limit_in_bytes", "v2": "memory.max"}
# None: the same as the memory limit.
SWAP: dict[str, tuple[str, str | None]] = {"v1": ("memory.memsw.limit_in_bytes", None), "v2": ("memory.swap.max", "0")}
PEAK = {"v1": "memory.max_usage_in_bytes", "v2": "memory.peak"}
THROTTLE = {"v1": "blkio.throttle.read_bps_device", "v2": "io.max"}
NAMES = {"memory": {"v1": "memory", "v2": "memory"}, "io": {"v1": "blkio", "v2": "io"}}


class CgroupError(CompareError):
    """No such control group can be made here; the text says why."""


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as error:
        raise CgroupError(f"cannot write {text!r} to {path}: {error.strerror}") from None


def mounts(mountinfo: str) -> dict[str, tuple[str, str]]:
    """Mount points by controller: {"memory": ("v1", "/sys/fs/cgroup/memory")}; version 2 is under its own name, "v2"."""
    found = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point, (kind, _, options) = before.split()[4], after.split()[:3]
        if kind == "cgroup2":
            found["v2"] = ("v2", point)
        elif kind == "cgroup":
            for option in options.split(","):
                found[option] = ("v1", point)
    return found


def own_groups(proc_cgroup: str) -> dict[str, str]:
    """This process's group by controller; version 2 is under "v2"."""
    groups = {}
    for line in proc_cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(",") if controllers else ["v2"]:
            groups[controller] = path
    return groups


def _v2_parent(mount: str, own: str, controller: str) -> str:
    """The nearest group above this process whose children may have the controller."""
    group = own.rstrip("/")
    while True:
        folder = mount + group
        with contextlib.suppress(OSError):
            if controller in _read(os.path.join(folder, "cgroup.subtree_control")).split():
                return folder
        if not group:
            break
        group = group.rsplit("/", 1)[0]
    if controller not in _read(os.path.join(mount, "cgroup.controllers")).split():
        raise CgroupError(f"{mount} has no controller {controller!r}")
    _write(os.path.join(mount, "cgroup.subtree_control"), f"+{controller}")
    return mount


def find_parent(controller: str, root: str = "") -> tuple[str, str]:
    """(version, folder) under which groups with this controller ("memory" or "io") can be made."""
    found = mounts(_read(root + "/proc/self/mountinfo"))
    own = own_groups(_read(root + "/proc/self/cgroup"))
    v1_name = NAMES[controller]["v1"]
    if v1_name in found:
        version, mount = found[v1_name]
        folder = root + mount + own.get(v1_name, "/").rstrip("/")
        return version, folder if os.path.isdir(folder) else root + mount  # in a container the group may be mounted as the root
    if "v2" in found:
        return "v2", _v2_parent(root + found["v2"][1], own.get("v2", "/"), controller)
    raise CgroupError(f"no control groups with {controller!r} are mounted")


class Group:
    """One group for one process. `device` is "major:minor"; None is no limit."""

    def __init__(
        self, limit_bytes: int | None = None, device: str | None = None, read_bytes_per_second: int | None = None, root: str = ""
    ):
        self._folders: dict[str, tuple[str, str]] = {}
        name = f"moed-compare-{os.getpid()}"
        try:
            for controller in ("memory", "io"):
                version, parent = find_parent(controller, root)
                folder = os.path.join(parent, name)
                try:
                    os.makedirs(folder, exist_ok=True)
                except OSError as error:
                    raise CgroupError(f"cannot make {folder}: {error.strerror}; run as root") from None
                self._folders[controller] = (version, folder)
            if limit_bytes is not None:
                self._limit(limit_bytes)
            if read_bytes_per_second is not None:
                version, folder = self._folders["io"]
                line = f"{device} {read_bytes_per_second}" if version == "v1" else f"{device} rbps={read_bytes_per_second}"
                _write(os.path.join(folder, THROTTLE[version]), line)
        except CgroupError:
            self.remove()
            raise

    def _limit(self, limit_bytes: int) -> None:
        version, folder = self._folders["memory"]
        _write(os.path.join(folder, LIMIT[version]), str(limit_bytes))
        name, value = SWAP[version]
        if os.path.exists(os.path.join(folder, name)):
            _write(os.path.join(folder, name), value or str(limit_bytes))

    def command(self, command: Sequence[str]) -> list[str]:
        """The command, started inside the group: a shell joins and becomes the program."""
        folders = sorted({folder for _, folder in self._folders.values()})
        joins = "".join(f"echo $$ > {shlex.quote(os.path.join(folder, 'cgroup.procs'))} && " for folder in folders)
        return ["/bin/sh", "-c", joins + 'exec "$@"', "sh", *command]

    def peak_bytes(self) -> int | None:
        """None where the kernel does not say it: memory.peak came with Linux 5.19."""
        version, folder = self._folders["memory"]
        try:
            return int(_read(os.path.join(folder, PEAK[version])))
        except OSError:
            return None

    def remove(self) -> None:
        for folder in {folder for _, folder in self._folders.values()}:
            for _ in range(100):  # a group is busy until its last process has been reaped
                try:
                    os.rmdir(folder)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.05)
        self._folders = {}


@contextlib.contextmanager
def group(limit_bytes: int | None = None, device: str | None = None, read_bytes_per_second: int | None = None) -> Iterator[Group]:
    made = Group(limit_bytes, device, read_bytes_per_second)
    try:
        yield made
    finally:
        made.remove()
