"""The files that `moed-plan all` left in a folder, and which of them a contender gets."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .. import CompareError
from .contenders import Given

# The option that takes it, and the file.
PLANS = {"widths": "widths.json", "paths": "paths", "fate-plan": "fate.json", "hobbit-plan": "hobbit.json"}
SLOTS = "slots"  # the option that takes one of the files of slots, of which the folder has some


class SlotsPlan(NamedTuple):
    path: str
    records: int  # that a cache needs to hold for it: its slots, and the spare one


def find_plans(folder: str, given: Sequence[Given]) -> tuple[list[Given], list[str]]:
    """What `moed-plan all` left in the folder for any cache, where `given` does not say it, and the files that are not there:
    their presets do without."""
    wanted = [(option, file) for option, file in PLANS.items() if all(one.name != option for one in given)]
    there = {file for _, file in wanted if os.path.exists(os.path.join(folder, file))}
    missing = [file for _, file in wanted if file not in there]
    if missing and not there and not find_slots(folder):
        raise CompareError(
            f'--plans {folder}: none of {", ".join(missing)}; "moed-plan all STORE TEXT --out {folder}" makes them'
        )
    return [Given("", option, os.path.join(folder, file)) for option, file in wanted if file in there], missing


def find_slots(folder: str) -> list[SlotsPlan]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [read_slots(os.path.join(folder, name)) for name in names if re.fullmatch(r"slots-\d+\.json", name)]


def read_slots(path: str) -> SlotsPlan:
    try:
        with open(path, encoding="utf-8") as file:
            return SlotsPlan(path, sum(json.load(file)["slots"]) + 1)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CompareError(f"--plans: {path}: no plan of slots: {error!r}") from None


def largest_that_fits(plans: Iterable[SlotsPlan], records: int) -> SlotsPlan | None:
    return max((plan for plan in plans if plan.records <= records), key=lambda plan: plan.records, default=None)
