"""What a daemon takes and tells while it is soaked, and whether that is as promised."""

import pathlib
import re
import urllib.request

from tools.daemon import Daemon


def counters_of(text: str) -> dict[str, float]:
    """Those of /metrics that may not go back: counters, and the counts of histograms."""
    types: dict[str, str] = {}
    counters: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            types[name] = kind
        elif not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            name = series.split("{")[0]
            if types.get(name) == "counter" or types.get(re.sub(r"_(bucket|count|sum)$", "", name)) == "histogram":
                counters[series] = float(value)
    return counters


class Watch:
    """Of one process. Faults are told in words, each kind once."""

    def __init__(self, daemon: Daemon, most_bytes: int):
        self._daemon = daemon
        self._process = pathlib.Path(f"/proc/{daemon.pid}")
        self._most_bytes = most_bytes
        self._counters: dict[str, float] = {}
        self._told: set[str] = set()
        self._faults: list[str] = []

    def fault(self, kind: str, words: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            self._faults.append(words)

    def take_faults(self) -> list[str]:
        """Since it was asked before."""
        taken, self._faults = self._faults, []
        return taken

    def descriptors(self) -> int:
        return len(list((self._process / "fd").iterdir()))

    def threads(self) -> int:
        return len(list((self._process / "task").iterdir()))

    def sample(self) -> dict[str, int]:
        row = {
            "resident": self._daemon.memory_bytes("VmRSS"),
            "highest": self._daemon.memory_bytes("VmHWM"),  # since the last sample
            "descriptors": self.descriptors(),
            "threads": self.threads(),
        }
        if row["highest"] > self._most_bytes:
            self.fault("memory", f"{row['highest']} bytes, of at most {self._most_bytes}")
        (self._process / "clear_refs").write_text("5")  # the kernel's high-water mark begins anew
        with urllib.request.urlopen(f"http://{self._daemon.metrics_address}/metrics", timeout=60) as answer:
            counters = counters_of(answer.read().decode())
        for series, before in self._counters.items():
            if counters.get(series, -1) < before:
                self.fault(f"metric {series}", f"{series} went from {before} to {counters.get(series)}")
        self._counters = counters
        return row
