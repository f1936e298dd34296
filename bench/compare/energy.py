"""Energy that the processor packages have used, where the machine lets one read it."""

import os
import re
from dataclasses import dataclass

PACKAGE = re.compile(r"intel-rapl:[^:]+")  # "intel-rapl:0:0" is a part of one


def _number(path: str) -> int | None:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


@dataclass
class _Zone:
    file: str
    range: int  # microjoules at which the counter starts again
    last: int
    used: int = 0


class EnergyMeter:
    def __init__(self, folder: str = "/sys/class/powercap"):
        """Package zones under `folder`; none when there are none or they may not be read."""
        self._zones = []
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            file = os.path.join(folder, name, "energy_uj")
            limit, now = _number(os.path.join(folder, name, "max_energy_range_uj")), _number(file)
            if PACKAGE.fullmatch(name) and limit is not None and now is not None:
                self._zones.append(_Zone(file, limit, now))

    def joules(self) -> float:
        """Of all packages since the start; counters that wrapped once since the last call are right."""
        for zone in self._zones:
            now = _number(zone.file)
            if now is not None:
                zone.used += now - zone.last if now >= zone.last else zone.range - zone.last + now
                zone.last = now
        return sum(zone.used for zone in self._zones) * 1e-6
