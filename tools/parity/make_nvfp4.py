#!/usr/bin/env python3
"""Writes a safetensors file with matrices of NVFP4 as ModelOpt and compressed-tensors have them, and what these say they mean.

usage: make_nvfp4.py FILE   (nvidia-modelopt 0.47.0, compressed-tensors 0.20.1, safetensors 0.8.0, torch 2.15.0)

NAME.expected is float32. Codes, scales and the number of the tensor are random: every code and every byte of a scale occurs. The
number of the second matrix of compressed-tensors is one whose inverse as a float32 gives other weights than the division.
"""

import sys

import torch
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import FP8_E4M3_DATA, QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.quant_scheme import NVFP4
from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor
from safetensors.torch import save_file

ROWS, COLS = 19, 128


def codes_and_scales() -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.randint(0, 256, (ROWS, COLS // 2), dtype=torch.uint8)
    scales = torch.randperm(ROWS * COLS // 16) % 0x7F
    return codes, scales.to(torch.uint8).reshape(ROWS, COLS // 16).view(torch.float8_e4m3fn)


def modelopt(number: float) -> dict[str, torch.Tensor]:
    codes, scales = codes_and_scales()
    factor = torch.tensor(number)
    matrix = NVFP4QTensor(torch.Size((ROWS, COLS)), torch.float32, codes)
    expected = matrix.dequantize(dtype=torch.float32, scale=scales, double_scale=factor, block_sizes={-1: 16})
    return {
        "weight": codes,
        "weight_scale": scales,
        "weight_scale_2": factor,
        "input_scale": torch.tensor(0.03),
        "expected": expected,
    }


def compressed(number: float) -> dict[str, torch.Tensor]:
    codes, scales = codes_and_scales()
    divisor = torch.tensor([number])
    arguments: QuantizationArgs = NVFP4["weights"]
    assert arguments.scale_dtype == FP8_E4M3_DATA.dtype
    wide = unpack_fp4_from_uint8(codes, ROWS, COLS, dtype=torch.float32)
    expected = dequantize(wide, scales.to(torch.float32), args=arguments, global_scale=divisor, dtype=torch.float32)
    return {
        "weight_packed": codes,
        "weight_scale": scales,
        "weight_global_scale": divisor,
        "input_global_scale": torch.tensor([300.0]),
        "expected": expected,
    }


def main() -> None:
    torch.manual_seed(17)
    matrices = {
        "modelopt": modelopt(0.00012345),
        "modelopt_large": modelopt(1.7),
        "compressed": compressed(4096.0),
        "compressed_uneven": compressed(11111.1),
    }
    save_file({f"{name}.{key}": value for name, matrix in matrices.items() for key, value in matrix.items()}, sys.argv[1])


if __name__ == "__main__":
    main()
