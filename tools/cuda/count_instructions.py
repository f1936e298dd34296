#!/usr/bin/env python3
"""Counts what the product kernels of few tokens issue for each weight, in the machine code that cuobjdump -sass prints.

A format's products have two loops that matter (core/kernels/device/integer_sums.h): one makes terms, with two loads of 16 bytes
of activations for a row's 32 columns and token, the other adds them. Floats have one, float_sums.h. Counted is a turn of their
unrolled bodies; what is outside of them, once a chunk of 8 KB, is not. Everything is warp instructions for 1024 weights.
"""

import argparse
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inspect_kernels import ROOT, plain

WEIGHTS = 1024
WARP = 32
SCHEDULERS = 4
# Of an H100 SXM, as docs/cuda.md measured and the maker says: multiprocessors, clock, bytes a second of a copy.
MULTIPROCESSORS, CLOCK, COPY = 132, 1.755e9, 2.956e12
# Bits of a weight with its share of the scales.
BITS = {
    "F32": 32.0, "F16": 16.0, "BF16": 16.0, "Q8": 8.5, "Q4": 4.5, "Q2": 3.0, "Q4A": 5.0, "Q3": 4.0, "Q5_0": 5.5, "Q5_1": 6.0,
    "Q2K": 2.625, "Q3K": 3.4375, "Q4K": 4.5, "Q5K": 5.5, "Q6K": 6.5625, "Iq4Nl": 4.5, "Iq4Xs": 4.25, "Iq3S": 3.4375,
    "Mxfp4": 4.25, "Q4Z": 4.75, "Q4Z128": 4.1875, "Fp8": 8.25, "Q2S": 2.5, "Q2P": 3.0, "Nvfp4": 4.625,
}  # fmt: skip
# Classes of instructions; the rest are integers, moves and branches.
CLASSES = {
    "dot products": r"IDP",
    "floats": r"FFMA|FMUL|FADD|HADD2|HFMA2",
    "shared memory": r"LDS|STS",
    "global memory": r"LDG?\b|LDG\.",
    "quarter rate": r"I2F\b|I2F\.|F2I|MUFU|POPC",
}


@dataclass(frozen=True)
class Loop:
    begin: int
    end: int
    body: list[str]

    def count(self, pattern: str) -> int:
        return sum(re.match(pattern, instruction) is not None for instruction in self.body)


def functions(sass: str) -> Iterator[tuple[str, dict[int, str]]]:
    """Of each kernel its name and its instructions, by address, without predicates."""
    parts = re.split(r"^\s*Function : (\S+)$", sass, flags=re.MULTILINE)[1:]
    names = plain("\n".join(parts[::2])).splitlines()
    for name, text in zip(names, parts[1::2], strict=True):
        found = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(?:@\S+\s+)?(.*?) ?;", text)
        yield name, {int(address, 16): instruction for address, instruction in found}


def innermost(code: dict[int, str]) -> list[Loop]:
    spans = []
    for address, instruction in code.items():
        target = re.match(r"BRA\S* .*?0x([0-9a-f]+)", instruction)
        if target and int(target[1], 16) < address:
            spans.append((int(target[1], 16), address))
    return [
        Loop(begin, end, [text for at, text in code.items() if begin <= at <= end])
        for begin, end in spans
        if not any(other != (begin, end) and begin <= other[0] and other[1] <= end for other in spans)
    ]


@dataclass(frozen=True)
class Count:
    making: float  # of 1024 weights; of floats all there is
    adding: float
    classes: dict[str, float]

    @property
    def all(self) -> float:
        return self.making + self.adding


def classes_of(parts: list[tuple[Loop, float]]) -> dict[str, float]:
    return {name: sum(scale * loop.count(pattern) for loop, scale in parts) for name, pattern in CLASSES.items()}


def count(code: dict[int, str], tokens_of_pass: int, tokens: int) -> Count:
    loops = innermost(code)
    making = [loop for loop in loops if loop.count("IDP")]
    adding = [loop for loop in loops if loop.count("FFMA") >= 4 and loop.count("LDS") and not loop.count("IDP")]
    if not making:  # each warp-wide fused operation is of 32 weights and a token
        loop = max(adding, key=lambda loop: loop.count("FFMA"))
        scale = tokens * WEIGHTS / WARP / loop.count("FFMA")
        return Count(scale * len(loop.body), 0, classes_of([(loop, scale)]))
    make = max(making, key=lambda loop: loop.count("IDP"))
    add = max(adding, key=lambda loop: (loop.count("FFMA"), -len(loop.body)))
    passes = -(-tokens // tokens_of_pass)
    rows = make.count(r"LDG?\.E\.128") / 2 / tokens_of_pass  # with 32 columns, that a lane makes terms of in a turn
    terms = (make.count(r"STS\.64") + 2 * make.count(r"STS\.128")) / tokens_of_pass / rows  # of them
    of_make, of_add = passes / rows, passes * 4 * terms / add.count("FFMA")
    return Count(of_make * len(make.body), of_add * len(add.body), classes_of([(make, of_make), (add, of_add)]))


def rank(values: list[float]) -> list[float]:
    return [float(sorted(values).index(value)) for value in values]


def correlation(a: list[float], b: list[float]) -> float:
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    both = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return both / math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))


def bound(issued: float, bits: float, schedulers: int = SCHEDULERS) -> float:
    """Bytes a second over those of the copy, where schedulers that share the 1024 weights' instructions issue in each cycle."""
    turns = MULTIPROCESSORS * schedulers * CLOCK / issued
    return turns * WEIGHTS * bits / 8 / COPY


def before(counted: Count, bits: float, tokens: int) -> float:
    """Of the kernels that docs/cuda.md has measured: the first warp added, so one scheduler had that. Of floats and one token two
    warps of four had work."""
    if counted.adding > 0:
        return bound(counted.making / SCHEDULERS + counted.adding, bits, 1)
    return bound(counted.making, bits, 2 if tokens == 1 else SCHEDULERS)


def measured() -> dict[str, tuple[float, float]]:
    """The document's shares of the copy, of 1 and of 4 tokens."""
    rows = re.findall(
        r"^\| `(\w+)` \| \d+ GB/s, ([\d.]+) \|.*?\|.*?\| ([\d.]+) \|", (ROOT / "docs/cuda.md").read_text(), re.MULTILINE
    )
    return {name.replace("_", ""): (float(one), float(four)) for name, one, four in rows}


def counts(sass: str) -> dict[str, tuple[Count, Count]]:
    found: dict[str, dict[int, Count]] = {}
    for name, code in functions(sass):
        kernel = re.search(r"ProductsOfFew<\w+<(\w+)>, (Integer|Float)Sums<.*, (\d+)> ?>", name)
        if kernel is None:
            continue
        tokens_of_pass = int(kernel[3])
        of_format = found.setdefault(kernel[1], {})
        if tokens_of_pass == 1:
            of_format[1] = count(code, 1, 1)
        if tokens_of_pass > 1 or kernel[2] == "Integer":
            four = count(code, tokens_of_pass, 4)
            if 4 not in of_format or four.all < of_format[4].all:
                of_format[4] = four
    return {name: (of_format[1], of_format[4]) for name, of_format in found.items()}


def table(of: dict[str, tuple[Count, Count]]) -> str:
    if missing := sorted(of.keys() - BITS.keys()):
        raise SystemExit(f"BITS has no row for {', '.join(missing)}")
    lines = [
        f"| weights | 1 token: making, adding | bound | {' | '.join(CLASSES)} | 4 tokens | bound |",
        "|---|---|---|" + "---|" * len(CLASSES) + "---|---|",
    ]
    for name, (one, four) in sorted(of.items(), key=lambda entry: list(BITS).index(entry[0])):
        bits = BITS[name]
        parts = f"{one.making:.0f}, {one.adding:.0f}" if one.adding else f"{one.making:.0f}"
        classes = " | ".join(f"{one.classes.get(kind, 0):.0f}" for kind in CLASSES)
        lines.append(
            f"| `{name}` | {parts} | {bound(one.all, bits):.2f} | {classes} | {four.all:.0f} | {bound(four.all, bits):.2f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("sass", type=Path, help="what cuobjdump -sass printed")
    parser.add_argument(
        "--measured", action="store_true", help="compare with the shares in docs/cuda.md; for the kernels that had them"
    )
    arguments = parser.parse_args()
    of = counts(arguments.sass.read_text())
    print(table(of))
    known = {name.lower().replace("_", ""): name for name in of}
    both = [(shares, known[name]) for name, shares in measured().items() if name in known]
    for tokens, i in ((1, 0), (4, 1)) if arguments.measured else ():
        predicted = [min(1, before(of[name][i], BITS[name], tokens)) for _, name in both]
        seen = [shares[i] for shares, _ in both]
        parts = [share / most for share, most in zip(seen, predicted, strict=True)]
        print(f"{tokens} token(s): measured {min(parts):.2f} to {max(parts):.2f} of the bound, ", end="")
        print(f"rank correlation {correlation(rank(predicted), rank(seen)):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
