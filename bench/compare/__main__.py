#!/usr/bin/env python3
"""Daemons beside each other: the same model, machine, texts, memory and disk, in turns within one run.

  python3 bench/compare systems --store MODEL.moed --quick     # moed's presets; docs/systems.md
  sudo python3 bench/compare llamacpp --quick --write-docs     # moed and llama.cpp; docs/benchmarks.md
  python3 bench/compare picture systems.json systems.png       # what `systems --json` wrote

llama.cpp comes from the PyPI source package llama-cpp-python and is built for this processor in --cache; the model files are made
there, too, when they are missing. Limits on memory and disk need root; what cannot be limited is named, not measured.
A run that was interrupted goes on where it ended. Python packages that are missing go into a virtual environment in --cache.
"""

import argparse
import importlib
import os
import pathlib
import signal
import subprocess
import sys

if not __package__:  # run by its path
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

from bench.compare import ROOT, CompareError, environment
from tools.daemon import PackError
from tools.server_process import ServerError

CAMPAIGNS = {"systems": "moed's presets beside each other on one model", "llamacpp": "moed beside llama.cpp"}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parser_of_all() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in CAMPAIGNS.items():
        options = importlib.import_module(f"bench.compare.{name}.options")
        options.add_options(commands.add_parser(name, help=text, description=text))
    picture = commands.add_parser("picture", help="draws what `systems --json` wrote")
    picture.add_argument("json", nargs="+", help="cells of all of them; may be compressed, FILE.xz")
    picture.add_argument("png")
    return parser


def run(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    command = given.__dict__.pop("command")
    if command == "picture":
        environment.ensure(os.path.join(ROOT, "build", "compare"), ("matplotlib",), say)
        importlib.import_module("bench.compare.systems.picture").draw_files(given.json, given.png)
        return
    module = importlib.import_module(f"bench.compare.{command}.options")
    options = module.checked(parser, given)
    os.makedirs(options.cache, exist_ok=True)
    environment.ensure(options.cache, module.MODULES, say)
    environment.make_stubs(options.cache)
    importlib.import_module(f"bench.compare.{command}.campaign").run(options, say)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds: children end, and what was changed of the disk is put back
    parser = parser_of_all()
    try:
        run(parser, parser.parse_args())
    except (CompareError, PackError, ServerError, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"compare: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
