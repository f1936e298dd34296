#!/usr/bin/env python3
"""Holds compiled CUDA kernels against the exact arithmetic and tells what they take of a multiprocessor.

Reads what tools/cuda/compile.sh makes: PTX and the assembler's report, an architecture each. An error is: arithmetic that is
flushed, approximated, or without the rounding that forbids the assembler to fuse it; a fused operation of doubles, of which the
definition has none, or in a kernel whose operation has none; registers that were spilled.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Operations that the definition makes of products and sums that are rounded each; a scale of nvfp4 is a fused sum.
UNFUSED = re.compile(r"\b(Add|Scale|Multiply|Prepare|Gather)Operation>|^(LayerNorm|Rope|StoreRows|Embed)\b(?!<Nvfp4>)")
FORBIDDEN = {
    "flushes subnormals": re.compile(r"\.ftz\b"),
    "approximates": re.compile(r"\.(approx|full)\b"),
    "may be fused by the assembler": re.compile(r"\b(add|sub|mul|mad)\.f(32|64)\b"),
    "fuses doubles": re.compile(r"\bfma\.\w+\.f64\b"),
}
# Of a multiprocessor: registers, warps. They are given to warps in pieces of 256.
REGISTERS, WARPS = 65536, {"sm_87": 48, "sm_90": 64}
# Products, by the tokens of a job.
PRODUCTS = {
    "1 token": "ProductsOfFew<.*(?:FloatSums|IntegerSums)<.*, 1>",
    "2 to 8 tokens": "ProductsOfFew<",
    "more tokens": "Products<",
}


# Global memory, or any by an address of no known kind.
MEMORY = re.compile(r"^\s*(?:@\S+\s+)?(?:ld|st|atom|red)\.(?!param|shared|local|const)", re.MULTILINE)


@dataclass(frozen=True)
class Kernel:
    name: str  # without namespaces and parameters
    registers: int
    spilled_bytes: int

    def occupancy(self, architecture: str) -> float:
        of_warp = -(-self.registers * 32 // 256) * 256
        return min(REGISTERS // of_warp, WARPS[architecture]) / WARPS[architecture]


def plain(names: str) -> str:
    text = subprocess.run(["c++filt"], input=names, capture_output=True, text=True, check=True).stdout
    text = re.sub(r"\(anonymous namespace\)::|moed::|compiled::|cuda::|quant::|_NV_ANON_NAMESPACE::", "", text)
    formats = re.findall(r"^  k(\w+) = (\d+),", (ROOT / "core/quant/format_id.h").read_text(), flags=re.MULTILINE)
    for name, number in formats:
        text = text.replace(f"(FormatId){number}>", f"{name}>").replace(f"(FormatId){number},", f"{name},")
    return text


def kernels(report: str) -> Iterator[Kernel]:
    for part in plain(report).split("Compiling entry function '")[1:]:
        name = part.split("'")[0].removeprefix("void ").split(">(")[0]
        name = name + ">" if "<" in name else name.split("(")[0]
        spilled = re.search(r"(\d+) bytes spill stores", part)
        registers = re.search(r"Used (\d+) registers", part)
        if spilled is None or registers is None:
            raise SystemExit(f"the assembler's report of {name} is not understood")
        yield Kernel(name, int(registers[1]), int(spilled[1]))


def entries(ptx: str) -> list[str]:
    """Of each kernel what begins with its name, which nvcc exports or not."""
    return re.split(r"^(?:\.visible )?\.entry ", ptx, flags=re.MULTILINE)[1:]


def complaints(ptx: str) -> Iterator[str]:
    for part in entries(plain(ptx)):
        name = part.split("(")[0].removeprefix("void ")
        for what, pattern in FORBIDDEN.items():
            if found := pattern.search(part):
                yield f"{name} {what}: {found[0]}"


def early(ptx: str) -> Iterator[str]:
    """Kernels that reach memory before they have joined the launches before them, where there is such a thing. Products of few
    tokens may: they read what no launch stores."""
    for part in entries(plain(ptx)) if "griddepcontrol" in ptx else []:
        name = part.split("(")[0].removeprefix("void ")
        joined, reached = part.find("griddepcontrol.wait"), MEMORY.search(part)
        if not name.startswith("ProductsOfFew") and (joined < 0 or (reached and reached.start() < joined)):
            yield f"{name} does not join the launches before it, or reaches memory before"


def fused_where_none_is(ptx: str, names: list[str]) -> Iterator[str]:
    for name, body in zip(names, entries(ptx), strict=True):
        if UNFUSED.search(name) and (found := re.search(r"\bfma\.\S+", body)):
            yield f"{name} has a fused operation that its definition has not: {found[0]}"


def entry_names(ptx: str) -> list[str]:
    mangled = [body.split("(")[0] for body in entries(ptx)]
    return [name.removeprefix("void ") for name in plain("\n".join(mangled)).splitlines()]


def share(values: list[float]) -> str:
    low, high = (round(100 * value) for value in (min(values), max(values)))
    return f"{low}%" if low == high else f"{low} to {high}%"


def table(of: dict[str, list[Kernel]]) -> str:
    """Registers and occupancy of kernels, those of one operation together."""
    lines = [f"| kernel | registers ({', '.join(of)}) | occupancy |", "|---|---|---|"]
    groups: dict[str, dict[str, list[Kernel]]] = {}
    for architecture, found in of.items():
        for kernel in found:
            if re.match("Products(?:OfFew)?<", kernel.name):
                key = "Products: " + next(tokens for tokens, pattern in PRODUCTS.items() if re.search(pattern, kernel.name))
            else:
                key = re.sub(r"<.*", "", kernel.name)
                operation = re.search(r"(?:ComputeElements|Prepare)<(\w+)Operation", kernel.name)
                key = operation[1] if operation else key
            groups.setdefault(key, {}).setdefault(architecture, []).append(kernel)
    for key in sorted(groups):
        registers, occupancy = [], []
        for architecture in of:
            some = groups[key][architecture]
            low, high = min(k.registers for k in some), max(k.registers for k in some)
            registers.append(str(low) if low == high else f"{low} to {high}")
            occupancy.append(share([k.occupancy(architecture) for k in some]))
        lines.append(f"| {key} | {', '.join(registers)} | {', '.join(occupancy)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("architectures", nargs="+")
    parser.add_argument("--table", action="store_true", help="print registers and occupancy")
    arguments = parser.parse_args()

    errors = []
    of = {}
    for architecture in arguments.architectures:
        ptx = (arguments.folder / f"kernels.{architecture}.ptx").read_text()
        errors += [
            f"{architecture}: {text}" for text in [*complaints(ptx), *early(ptx), *fused_where_none_is(ptx, entry_names(ptx))]
        ]
        of[architecture] = list(kernels((arguments.folder / f"kernels.{architecture}.log").read_text()))
        errors += [f"{architecture}: {k.name} spills {k.spilled_bytes} bytes" for k in of[architecture] if k.spilled_bytes > 0]
        if not of[architecture] or len(of[architecture]) != len(entries(ptx)):
            errors.append(f"{architecture}: {len(of[architecture])} kernels are assembled, {len(entries(ptx))} are in the PTX")
    for error in errors:
        print(error, file=sys.stderr)
    if arguments.table and not errors:
        print(table(of))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
