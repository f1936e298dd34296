"""What the command line says."""

import argparse
import os
import pathlib
from dataclasses import dataclass

from .. import ROOT

FORMATS = ("q4", "q8")
GGUF = "gguf"  # in the place of a format: a GGUF file as it is
MODULES = ("numpy", "gguf", "matplotlib", "grpc")  # what has to be there to measure


@dataclass(frozen=True)
class Options:
    quick: bool
    best_settings: bool
    only: str
    list: bool
    report: bool
    turns: int
    formats: tuple[str, ...]
    store_of: str | None
    gguf: str | None
    coded: int | None
    files: str
    text: str
    bin: str
    instructions: str
    moed_flags: str
    cache: str
    journal: str
    fresh: bool
    write_docs: bool


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--quick", action="store_true", help="some cells, two turns, with --best-settings: half an hour")
    add("--best-settings", action="store_true", help="all cells, in RAM with the settings that have been the best")
    add("--only", metavar="PATTERN", default="", help="only lines of --list that have this in them, such as q4/25 or /ram:")
    add("--list", action="store_true", help="print all cells and contenders, and end")
    add("--report", action="store_true", help="measure nothing: print what --journal has")
    add("--turns", type=int, metavar="N", help="turns of each contender [3, with --quick 2]")
    add("--formats", default=",".join(FORMATS), help="of %(default)s (with --quick q4)")
    add("--store-of", metavar="CHECKPOINT", help="compare with this checkpoint [the demo model widened by 16]")
    add("--gguf", metavar="FILE", help="compare with this GGUF file: llama.cpp runs it, moed a store that keeps its blocks")
    add("--coded", type=int, metavar="N", help="moed's store is what moed-pack --coded=N makes, NAME-q4-codedN.moed [not coded]")
    add("--files", metavar="FOLDER", help="where NAME-q4.moed, NAME-q4_0.gguf and so on are or are made [--cache]")
    text = os.path.join(ROOT, "models", "tales-qwen", "heldout.txt")
    add("--text", default=text, help="prompts are taken from here [%(default)s]")
    add("--bin", default=os.path.join(ROOT, "build", "release", "bin"), help="moed's programs [%(default)s]")
    held = "hold both programs to AVX2 on a processor that has more [%(default)s]"
    add("--instructions", choices=("native", "avx2"), default="native", help=held)
    add("--moed-flags", default="", metavar="FLAGS", help="more flags for moed, such as '--preset load-on-demand-lru'")
    add("--cache", default=os.path.join(ROOT, "build", "compare"), help="for everything that is made [%(default)s]")
    named = "[--cache/llamacpp.jsonl, with --quick quick.jsonl, with other instructions quick-avx2.jsonl]"
    add("--journal", metavar="FILE", help=f"finished turns; tables and picture go beside it {named}")
    add("--fresh", action="store_true", help="forget what is in --journal")
    add("--write-docs", action="store_true", help="put tables and picture into docs/benchmarks.md")


def checked(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Options:
    """Ends the program where the command line is wrong. All paths are absolute."""
    for name in ("cache", "bin", "text", "files", "store_of", "gguf", "journal"):
        if getattr(given, name):
            setattr(given, name, os.path.abspath(getattr(given, name)))
    given.files = given.files or given.cache
    if given.gguf and (given.store_of or given.write_docs):
        parser.error("--gguf goes with neither --store-of nor --write-docs")
    if given.gguf and given.coded is not None:
        parser.error("--gguf does not go with --coded: moed's store keeps the file's blocks")
    if given.coded is not None and not 1 <= given.coded <= 99:
        parser.error(f"--coded {given.coded}: 1 to 99 percent are allowed")
    if not given.journal:
        suffix = "" if given.instructions == "native" else f"-{given.instructions}"
        suffix += f"-{pathlib.Path(given.gguf).stem}" if given.gguf else ""
        given.journal = os.path.join(given.cache, f"{'quick' if given.quick else 'llamacpp'}{suffix}.jsonl")
    if given.turns is None:
        given.turns = 2 if given.quick else 3
    if given.turns < 1:
        parser.error("--turns has to be 1 or more")
    given.formats = ("q4",) if given.quick else tuple(given.formats.split(","))
    unknown = set(given.formats) - set(FORMATS)
    if unknown:
        parser.error(f"--formats: {', '.join(sorted(unknown))} unknown; known are {', '.join(FORMATS)}")
    if given.gguf:
        given.formats = (GGUF,)
    return Options(**vars(given))
