#!/usr/bin/env python3
"""Compares moed with llama.cpp: the same checkpoint, machine, texts, memory limit and disk, in turns within one run.

  python3 bench/versus_llamacpp --quick --write-docs

llama.cpp comes from the PyPI source package llama-cpp-python and is built for this processor in --cache; the model files are made
there too when they are missing. Limits on memory and disk need root. Results are kept in --json after every turn; a run that was
interrupted goes on where it ended. docs/benchmarks.md says what is measured and how.
"""

import os
import pathlib
import signal
import sys

if not __package__:  # run by its path
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

from bench.versus_llamacpp import environment
from bench.versus_llamacpp.options import parse


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    options = parse(__doc__)
    os.makedirs(options.cache, exist_ok=True)
    environment.ensure(options.cache, say)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that the read-ahead is put back and children end
    from bench.versus_llamacpp import campaign  # imports the packages that environment.ensure has seen to

    try:
        campaign.run(options, say)
    except campaign.ERRORS as error:
        sys.exit(f"versus_llamacpp: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
