#!/usr/bin/env python3
"""Compares moed with llama.cpp: the same checkpoint, machine, texts, memory limit and disk, in turns within one run.

  python3 bench/versus_llamacpp --quick --write-docs

llama.cpp comes from the PyPI source package llama-cpp-python and is built for this processor in --cache; the model files are made
there too when they are missing. Limits on memory and disk need root. Results are kept in --json after every turn; a run that was
interrupted goes on where it ended. docs/benchmarks.md says what is measured and how.
"""
import argparse
import os
import signal
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

import environment  # noqa: E402


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(prog="versus_llamacpp", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true",
                        help="some cells, two turns, the settings that have been llama.cpp's best: 15 minutes")
    parser.add_argument("--best-settings", action="store_true",
                        help="all cells, but with the settings that have been the best")
    parser.add_argument("--only", metavar="PATTERN", default="",
                        help="only lines of --list that have this in them, such as q4/25 or /ram:")
    parser.add_argument("--list", action="store_true", help="print all cells and contenders, and end")
    parser.add_argument("--report", action="store_true", help="measure nothing: print what --json has")
    parser.add_argument("--turns", type=int, metavar="N", help="turns of each contender [3, with --quick 2]")
    parser.add_argument("--formats", default="q4,q8", help="of %(default)s (with --quick q4)")
    parser.add_argument("--store-of", metavar="CHECKPOINT", help="compare with this checkpoint [the demo model widened by 16]")
    parser.add_argument("--files", metavar="FOLDER",
                        help="where NAME-q4.moed, NAME-q4_0.gguf and so on are or are made [--cache]")
    parser.add_argument("--text", default=os.path.join(ROOT, "models", "tales-qwen", "heldout.txt"),
                        help="prompts are taken from here [%(default)s]")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"), help="moed's programs [%(default)s]")
    parser.add_argument("--instructions", choices=("native", "avx2"), default="native",
                        help="hold both programs to AVX2 on a processor that has more [%(default)s]")
    parser.add_argument("--moed-flags", default="", metavar="FLAGS", help="more flags for moed, such as '--predictor none'")
    parser.add_argument("--cache", default=os.path.join(ROOT, "build", "versus"),
                        help="for everything that is made [%(default)s]")
    parser.add_argument("--json", metavar="FILE",
                        help="results [--cache/results.json, with --quick quick.json, with other instructions quick-avx2.json]")
    parser.add_argument("--fresh", action="store_true", help="forget the results in --json")
    parser.add_argument("--write-docs", action="store_true", help="put tables and picture into docs/benchmarks.md")
    options = parser.parse_args()
    for name in ("cache", "bin", "text", "files", "store_of", "json"):
        if getattr(options, name):
            setattr(options, name, os.path.abspath(getattr(options, name)))
    options.files = options.files or options.cache
    if not options.json:
        suffix = "" if options.instructions == "native" else f"-{options.instructions}"
        options.json = os.path.join(options.cache, f"{'quick' if options.quick else 'results'}{suffix}.json")
    options.turns = options.turns or (2 if options.quick else 3)
    if options.turns < 1:
        parser.error("--turns has to be 1 or more")
    options.formats = ["q4"] if options.quick else options.formats.split(",")
    unknown = set(options.formats) - {"q4", "q8"}
    if unknown:
        parser.error(f"--formats: {', '.join(sorted(unknown))} unknown; known are q4, q8")
    return options


def main():
    options = parse()
    os.makedirs(options.cache, exist_ok=True)
    environment.ensure(options.cache, say)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that the read-ahead is put back and children end
    import campaign
    try:
        campaign.run(options, say)
    except campaign.ERRORS as error:
        sys.exit(f"versus_llamacpp: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
