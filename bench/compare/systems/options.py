"""What the command line says."""

import argparse
import os
import pathlib
from dataclasses import dataclass

from .. import ROOT

HELDOUT = os.path.join(ROOT, "models", "tales-qwen", "heldout.txt")
MODULES = ("grpc",)  # what has to be there to measure


@dataclass(frozen=True)
class Options:
    store: str
    presets: str
    options: list[str]
    plans: str
    shares: list[str]
    disks: list[str]
    memory_budget: str
    recorded_routing: str
    prompts: str
    learn_text: str
    learn_seconds: float
    quality_text: str
    quality_tokens: int
    choices: int
    seconds: float
    turns: int
    counted_tokens: int
    stop_after: float
    quick: bool
    list: bool
    moed: str
    bin: str
    moed_flags: str
    cache: str
    journal: str
    json: str
    markdown: str
    picture: str


def within(low: float, high: float) -> type[float]:
    """A type of arguments."""

    def parsed(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text}: allowed are {low:g} to {high:g}")
        return value

    return parsed  # type: ignore[return-value]


def words(text: str) -> list[str]:
    return text.split(",")


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--store", required=True, help="the packed model; two precisions, or presets that need them are not run")
    add(
        "--presets",
        default="all",
        help="all, ablations, or names separated by commas: PRESET[+learned][+NAME=VALUE...][@FIDELITY]",
    )
    add(
        "--options",
        action="append",
        default=[],
        help="[PRESET:]NAME=VALUE,...: for all who know the option; {share} in a value is the cell's; may be repeated",
    )
    add(
        "--plans",
        default="",
        help='folder of "moed-plan all": every contender gets what it takes of it, where --options does not say',
    )
    add("--shares", type=words, default=[], help="percent of the experts in the cache, separated by commas [all cells]")
    add("--disks", type=words, default=[], help="native, 550, 90, separated by commas [all cells]")
    add(
        "--memory-budget",
        default="",
        help="one cell of this budget (8GB) on the native disk, with longer turns, instead of the others",
    )
    add(
        "--recorded-routing",
        default="",
        metavar="DIR",
        help="a trace that says which experts tokens go to, for stores of random weights: moed-recorded is run, prompts are the "
        "trace's, nothing is scored",
    )
    add(
        "--prompts",
        default=HELDOUT,
        help="text that prompts are cut from: a file, or a folder with one kind a file [%(default)s]",
    )
    add(
        "--learn-text",
        default="",
        help="text, as --prompts, that PRESET+learned learns from before its turns [the first half of --prompts, which are "
        "then cut from the second]",
    )
    add("--learn-seconds", type=within(0.01, 1e6), default=60.0, help="for how long, once for each cache size [%(default)s]")
    add("--quality-text", default=HELDOUT, help="text that is scored [%(default)s]")
    add("--quality-tokens", type=int, default=2048, help="of it, at most [%(default)s]")
    add("--choices", type=int, default=0, help="questions of multiple choice that are cut from it [%(default)s]")
    add(
        "--seconds",
        type=within(0.5, 60),
        default=0.0,
        help="of a turn on the native disk [10, with --quick 6]; others in proportion",
    )
    add("--turns", type=int, default=0, help="of every contender in a cell [3, 3 and 1, with --quick 2]")
    add("--counted-tokens", type=int, default=0, help="of answers in a turn, at most [96, 32 and 16, with --quick 24 and 16]")
    add("--stop-after", type=float, default=0.0, metavar="SECONDS", help="of measuring, after which no other measurement begins")
    add("--quick", action="store_true", help="25 %% on the native disk and at 550 MB/s, fewer tokens")
    add("--list", action="store_true", help="print all cells and contenders, and end")
    add("--bin", default=os.path.join(ROOT, "build", "release", "bin"), help="moed's programs [%(default)s]")
    add("--moed", default="", help="the daemon's program [moed of --bin]")
    add("--moed-flags", default="", help="further flags of every daemon, separated by blanks")
    add("--cache", default=os.path.join(ROOT, "build", "compare"), help="for everything that is made [%(default)s]")
    add(
        "--journal",
        default="systems.jsonl",
        help="finished measurements; the same command goes on where it was interrupted [%(default)s]",
    )
    add("--json", default="", help="where all figures go")
    add("--markdown", default="", help="where the tables go, beside standard output")
    add("--picture", default="", help="where they are drawn (needs matplotlib)")


def checked(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Options:
    """Ends the program where the command line is wrong."""
    if given.quality_tokens < 2 or given.turns < 0 or given.counted_tokens < 0 or given.choices < 0:
        parser.error("--quality-tokens has to be 2 or more, --turns and --counted-tokens 1 or more, --choices 0 or more")
    given.moed = given.moed or str(pathlib.Path(given.bin) / ("moed-recorded" if given.recorded_routing else "moed"))
    return Options(**vars(given))
