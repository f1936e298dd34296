"""The numbers: how a weight is shared among the copies of its input, and the rows of a widened tensor."""

import functools
from collections.abc import Iterator

import numpy as np

from .checkpoint import Array
from .model import Tensor

PIECE_BYTES = 1 << 20  # stays in the processor's cache between making and writing


def share_exponents(copies: int) -> list[int]:
    """e_0, e_1, ...: copy b of an input carries 2^-e_b of the weight; the shares sum to one.

    A quarter of the copies has 2/copies each, a quarter 1/copies and half of them 1/(2 copies): unequal, yet none so small that
    the scale of a quantised block leaves the range of float16. Two copies can only have a half each.
    """
    log2 = copies.bit_length() - 1
    assert copies == 1 << log2
    if copies < 4:
        return [log2] * copies
    quarter = copies // 4
    return [log2 - 1] * quarter + [log2] * quarter + [log2 + 1] * 2 * quarter


@functools.cache
def _bf16_scaling(exponent: int) -> Array:
    """[bits of a bfloat16] -> bits of it times 2^-exponent, exact but for numbers below 2^-126, which are rounded to even."""
    with np.errstate(all="ignore"):  # infinities and NaN stay what they are
        scaled = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32) * np.float32(2.0**-exponent)
    bits = scaled.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def scaled(values: Array, exponent: int) -> Array:
    """values times 2^-exponent; bfloat16 travels as uint16."""
    if exponent == 0:
        return values
    if values.dtype == np.uint16:
        return _bf16_scaling(exponent)[values]
    return values * np.float32(2.0**-exponent)


def pieces(tensor: Tensor, values: Array) -> Iterator[Array]:
    """The widened tensor in row-major order, piece by piece; a piece is valid until the next is asked for."""
    if values.ndim == 1:
        yield np.tile(values, tensor.axes[0].copies)
        return
    (rows, cols), (row_copies, col_copies) = values.shape, (axis.copies for axis in tensor.axes)
    exponents = share_exponents(col_copies) if tensor.split else [0] * col_copies
    by_exponent = {exponent: scaled(values, exponent) for exponent in set(exponents)}
    step = max(1, min(rows, PIECE_BYTES // (col_copies * cols * values.itemsize)))
    buffer = np.empty((step, col_copies, cols), values.dtype)
    for row_copy in range(row_copies):
        for first in range(0, rows, step):
            piece = buffer[: min(step, rows - first)]
            for col_copy in range(col_copies):
                exponent = exponents[(row_copy + col_copy) % col_copies]  # another copy leads in every block of rows
                piece[:, col_copy] = by_exponent[exponent][first : first + step]
            yield piece
