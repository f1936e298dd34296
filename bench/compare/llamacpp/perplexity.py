#!/usr/bin/env python3
"""Perplexity of GGUF files by llama.cpp and by moed, which keeps their blocks, on the same tokens.

  python3 bench/compare/llamacpp/perplexity.py                          # the demo model widened by 8, in the types of --types
  python3 bench/compare/llamacpp/perplexity.py FILE.gguf ...            # files that are there

llama.cpp is fetched and built as for the comparison of speed. Its llama-quantize makes the files. Its llama-perplexity cuts the
text into tokens and windows and counts the second half of each window; moed scores the same. Prints a table of both.
"""

import argparse
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

if not __package__:  # run by its path
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[3])

import gguf
import numpy as np

from bench.compare import ROOT, Say, environment
from bench.compare.llamacpp import files, gguf_from_checkpoint, llama
from bench.compare.moed import Moed

TARGETS = ("llama-quantize", "llama-perplexity")
TYPES = "Q8_0,Q4_0,Q4_1,Q5_0,Q5_1,Q2_K,Q3_K_M,Q4_K_M,Q5_K_M,Q6_K,IQ4_NL,IQ4_XS,IQ3_S,MXFP4_MOE"
WIDEN_FACTOR = 8  # rows of all matrices are then whole super-blocks of 256


@dataclass(frozen=True)
class Tokens:
    """What llama-perplexity cut the text into."""

    windows: Sequence[Sequence[int]]
    bos: int | None  # takes the place of each window's first token

    @staticmethod
    def read(path: str, bos: int | None) -> "Tokens":
        """From the beginning of the file that --save-all-logits writes."""
        with open(path, "rb") as file:
            if file.read(8) != b"_logits_":
                raise ValueError(f"{path}: not what llama-perplexity writes")
            window, _vocabulary, count = np.frombuffer(file.read(12), np.int32)
            ids = np.frombuffer(file.read(4 * int(window) * int(count)), np.int32)
        return Tokens([list(map(int, row)) for row in ids.reshape(int(count), int(window))], bos)

    def as_scored(self) -> Iterator[list[int]]:
        for window in self.windows:
            yield [window[0] if self.bos is None else self.bos, *window[1:]]


def bos_of(path: str) -> int | None:
    """The token that llama.cpp puts before a text, if it does."""
    reader = gguf.GGUFReader(path)
    wanted, token = (reader.get_field(f"tokenizer.ggml.{name}") for name in ("add_bos_token", "bos_token_id"))
    return int(token.contents()) if wanted and token and wanted.contents() else None


def by_llama(programs: str, path: str, text: str, window: int, chunks: int, threads: int) -> tuple[float, Tokens]:
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(path)) as logits:
        command = [os.path.join(programs, "llama-perplexity"), "--model", path, "--file", text, "--ctx-size", str(window)]
        command += ["--batch-size", str(window), "--chunks", str(chunks), "--threads", str(threads), "--no-warmup"]
        command += ["--fit", "off", "--save-all-logits", logits.name]
        run = subprocess.run(command, capture_output=True, text=True)
        found = re.search(r"Final estimate: PPL = ([0-9.]+)", run.stdout + run.stderr)
        if run.returncode or not found:
            raise SystemExit(f"llama-perplexity ended with status {run.returncode}: {run.stderr[-500:]}")
        return float(found[1]), Tokens.read(logits.name, bos_of(path))


def by_moed(programs: str, store: str, tokens: Tokens) -> float:
    nll, counted = 0.0, 0
    with Moed(os.path.join(programs, "moed"), ["--store", store]) as server:
        for window in tokens.as_scored():
            second_half = server.score(window).logprobs[len(window) // 2 :]
            nll -= sum(second_half)
            counted += len(second_half)
    return math.exp(nll / counted)


def quantised(programs: str, cache: str, types: Sequence[str], say: Say) -> Iterator[str]:
    checkpoint = files.widened_demo(cache, say, WIDEN_FACTOR)
    whole = f"{checkpoint}-bf16.gguf"
    if not os.path.exists(whole):
        say(f"writing {whole}")
        gguf_from_checkpoint.write_gguf(checkpoint, whole, "bf16")
    for kind in types:
        path = f"{checkpoint}-{kind}.gguf"
        if not os.path.exists(path):
            command = [os.path.join(programs, "llama-quantize"), whole, path + ".partial", kind]
            subprocess.run(command, check=True, capture_output=True)
            os.replace(path + ".partial", path)
        yield path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("gguf", nargs="*", help="files to compare with [the demo model in each of --types]")
    add("--types", default=TYPES, help="of llama-quantize [%(default)s]")
    add("--text", default=os.path.join(ROOT, "models", "tales-qwen", "heldout.txt"), help="[%(default)s]")
    add("--window", type=int, default=256, help="tokens of a window, of which the second half counts [%(default)s]")
    add("--chunks", type=int, default=16, help="windows at most [%(default)s]")
    add("--threads", type=int, default=os.cpu_count() or 1, help="of llama.cpp [%(default)s]")
    add("--bin", default=os.path.join(ROOT, "build", "release", "bin"), help="moed's programs [%(default)s]")
    add("--cache", default=os.path.join(ROOT, "build", "compare"), help="for everything that is made [%(default)s]")
    given = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    cache = os.path.abspath(given.cache)
    os.makedirs(cache, exist_ok=True)
    built = llama.build(cache, "native", say, TARGETS)
    programs = os.path.abspath(given.bin)
    environment.make_stubs(cache)
    paths = map(os.path.abspath, given.gguf) if given.gguf else quantised(built, cache, given.types.split(","), say)
    print("| file | llama.cpp | moed | ratio |\n|---|---|---|---|", flush=True)
    for path in paths:
        theirs, tokens = by_llama(built, path, given.text, given.window, given.chunks, given.threads)
        ours = by_moed(programs, files.prepare_gguf(programs, path, cache, say).store, tokens)
        print(f"| {pathlib.Path(path).stem} | {theirs:.4f} | {ours:.4f} | {ours / theirs:.5f} |", flush=True)


if __name__ == "__main__":
    main()
