#!/usr/bin/env python3
"""Make tests/quant/data/ggml_blocks.bin: blocks of every block type of GGUF files that moed keeps, and the float32 that they are.

The repository has it packed by xz.

Bytes are random, but scales in float16, e8m0 and e4m3 are sane numbers, and codes are such that all of them appear: the grid rows
of IQ3_S are counted through. For each type, little-endian: u32 number of the type, u32 columns of a block, u32 bytes of a block,
u32 blocks, the blocks, the weights as float32 (dequantize of the Python package gguf).

Made with gguf 0.19.0, numpy 2.4.6.
"""

import argparse
import pathlib
import struct

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type

# Where the float16 numbers of a block begin; and its blocks.
FLOAT16 = {
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q8_0: [0],
    Type.Q2_K: [80, 82],
    Type.Q3_K: [108],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
    Type.IQ4_NL: [0],
    Type.IQ3_S: [0],
    Type.IQ4_XS: [0],
    Type.MXFP4: [],
    Type.NVFP4: [],
}
WEIGHTS = 4096


def blocks_of(kind: Type, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    columns, size = gguf.GGML_QUANT_SIZES[kind]
    count = WEIGHTS // columns
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in FLOAT16[kind]:
        halves = random.normal(0, 0.05, count).astype(np.float16)
        halves[:4] = [0.0, 6e-8, -6e-8, 65504.0]
        blocks[:, at : at + 2] = halves.view(np.uint8).reshape(count, 2)
    if kind == Type.MXFP4:
        blocks[:, 0] = random.integers(110, 130, count, dtype=np.uint8)
        blocks[:6, 0] = [0, 1, 2, 127, 254, 255]
    if kind == Type.NVFP4:
        blocks[:, :4] %= 0x7F  # e4m3 without a sign, and without its NaN
    if kind == Type.IQ3_S:
        rows = (np.arange(count * 64) * 5 % 512).reshape(count, 8, 8)
        blocks[:, 2:66] = (rows & 255).reshape(count, 64)
        blocks[:, 66:74] = np.packbits(rows >> 8, axis=-1, bitorder="little").reshape(count, 8)
    return blocks


def floats(kind: Type, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    numbers = random.normal(0, 0.05, 512).astype(np.float32)
    numbers[:6] = [0.0, -0.0, 1e-7, -3e-8, 60000.0, 1.0]
    blocks: npt.NDArray[np.uint8] = gguf.quants.quantize(numbers, kind).view(np.uint8)
    return blocks.reshape(512, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=pathlib.Path)
    random = np.random.default_rng(14)
    with parser.parse_args().output.open("wb") as file:
        for kind in [Type.F32, Type.F16, Type.BF16, *FLOAT16]:
            blocks = blocks_of(kind, random) if kind in FLOAT16 else floats(kind, random)
            with np.errstate(over="ignore"):
                weights = gguf.quants.dequantize(blocks, kind)
            file.write(
                struct.pack("<4I", kind, *gguf.GGML_QUANT_SIZES[kind], len(blocks))
                + blocks.tobytes()
                + weights.astype("<f4").tobytes()
            )


if __name__ == "__main__":
    main()
