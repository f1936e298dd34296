#!/usr/bin/env python3
"""Writes a safetensors file with matrices quantised by AWQ, GPTQ and FP8, and what they mean (NAME.expected, float32).

usage: make_quantized.py FILE   (torch, safetensors; transformers 5.23.0, whose Fp8Dequantize gives what FP8 means)

AWQ and GPTQ are packed as AutoAWQ 0.2 (WQLinear_GEMM.from_linear) and GPTQModel (convert_gptq_v2_to_v1_format) pack them. They
mean (code - zero) * scale in float32, which is exact. Numbers are random: every code and zero occurs.
"""

import sys

import torch
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def words(nibbles: torch.Tensor) -> torch.Tensor:
    """(..., 8) nibbles, the first one lowest, to (...) int32."""
    shifted = nibbles.to(torch.int64) << torch.arange(0, 32, 4)
    return shifted.sum(-1).to(torch.uint32).view(torch.int32)


def groups(rows: int, cols: int, group: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes (cols, rows), zeros and scales (groups, rows), and the weights (rows, cols)."""
    codes = torch.randint(0, 16, (cols, rows))
    zero = torch.randint(0, 16, (cols // group, rows))
    scale = (torch.rand(cols // group, rows) * 0.02 + 0.001).to(torch.float16)
    wide = (codes - zero.repeat_interleave(group, 0)).to(torch.float32) * scale.to(torch.float32).repeat_interleave(group, 0)
    return codes, zero, scale, wide.T.contiguous()


def awq(rows: int, cols: int, group: int) -> dict[str, torch.Tensor]:
    codes, zero, scale, expected = groups(rows, cols, group)
    packed = [words(part.reshape(len(part), -1, 8)[..., AWQ_ORDER]) for part in (codes, zero)]
    return {"qweight": packed[0], "qzeros": packed[1], "scales": scale, "expected": expected}


def gptq(rows: int, cols: int, group: int, zero_term: int) -> dict[str, torch.Tensor]:
    codes, zero, scale, expected = groups(rows, cols, group)
    stored = words(zero.reshape(len(zero), -1, 8)).to(torch.int64) - zero_term * 0x11111111  # whole words: a zero of 0 borrows
    return {
        "qweight": words(codes.reshape(-1, 8, rows).transpose(1, 2)),
        "qzeros": (stored & 0xFFFFFFFF).to(torch.uint32).view(torch.int32),
        "scales": scale,
        "g_idx": (torch.arange(cols) // group).to(torch.int32),
        "expected": expected,
    }


def fp8(rows: int, cols: int, block_rows: int, block_cols: int, scale_type: torch.dtype) -> dict[str, torch.Tensor]:
    bytes_ = torch.randint(0, 256, (rows, cols), dtype=torch.uint8)
    bytes_[(bytes_ & 0x7F) == 0x7F] = 0  # NaN
    weight = bytes_.view(torch.float8_e4m3fn)
    scale = (torch.rand(rows // block_rows, cols // block_cols) * 1e-3 + 1e-5).to(scale_type)
    expected = Fp8Dequantize(None)._dequantize_one(weight, scale, torch.float32)
    one = scale.numel() == 1
    return {
        "weight": weight,
        "weight_scale" if one else "weight_scale_inv": scale.reshape(()) if one else scale,
        "expected": expected,
    }


def main() -> None:
    torch.manual_seed(11)
    matrices = {
        "awq128": awq(8, 256, 128),
        "awq32": awq(16, 96, 32),
        "gptq128": gptq(8, 256, 128, 1),
        "gptq64": gptq(16, 128, 64, 1),
        "gptq_v2": gptq(8, 128, 128, 0),
        "fp8": fp8(16, 256, 8, 128, torch.float32),
        "fp8_bf16": fp8(16, 128, 8, 128, torch.bfloat16),
        "fp8_one": fp8(11, 128, 11, 128, torch.float32),
    }
    save_file({f"{name}.{key}": value for name, matrix in matrices.items() for key, value in matrix.items()}, sys.argv[1])


if __name__ == "__main__":
    main()
