"""Reads tensors of a checkpoint folder of safetensors files as float32, one at a time, with nothing but numpy."""

import glob
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


class CheckpointError(Exception):
    """The checkpoint cannot be used; the text says why."""


Array = NDArray[Any]


def _from_bfloat16(words: Array) -> Array:
    return (words.astype(np.uint32) << 16).view(np.float32)


def _from_float(values: Array) -> Array:
    return values.astype(np.float32)


# Name in the header -> how it lies in the file, how it becomes float32.
NUMBERS: dict[str, tuple[np.dtype[Any], Callable[[Array], Array]]] = {
    "F32": (np.dtype(np.float32), _from_float),
    "F16": (np.dtype(np.float16), _from_float),
    "BF16": (np.dtype(np.uint16), _from_bfloat16),
}


@dataclass(frozen=True)
class _Entry:
    path: str
    offset: int  # of the data
    dtype: str  # of NUMBERS
    shape: tuple[int, ...]


class SafetensorsFolder:
    def __init__(self, folder: str):
        self._entries: dict[str, _Entry] = {}
        paths = sorted(glob.glob(os.path.join(folder, "*.safetensors")))
        if not paths:
            raise CheckpointError(f"{folder}: no *.safetensors")
        for path in paths:
            self._read_header(path)

    def _read_header(self, path: str) -> None:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > size - 8:
                raise CheckpointError(f"{path}: a header of {length} bytes in a file of {size}")
            try:
                header = json.loads(file.read(length))
            except ValueError as error:
                raise CheckpointError(f"{path}: the header is no JSON: {error}") from None
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] not in NUMBERS:
                raise CheckpointError(f"{path}: {name} is {entry['dtype']}; known are {', '.join(NUMBERS)}")
            begin, end = entry["data_offsets"]
            wanted = math.prod(entry["shape"]) * NUMBERS[entry["dtype"]][0].itemsize
            if end - begin != wanted or 8 + length + end > size:
                raise CheckpointError(f"{path}: {name} of shape {entry['shape']} does not fit its place {begin}..{end}")
            self._entries[name] = _Entry(path, 8 + length + begin, entry["dtype"], tuple(entry["shape"]))

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            raise CheckpointError(f"the checkpoint has no tensor {name}")
        return self._entries[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape

    def read(self, name: str) -> Array:
        entry = self._entry(name)
        stored, to_float32 = NUMBERS[entry.dtype]
        count = math.prod(entry.shape)
        return to_float32(np.fromfile(entry.path, stored, count, offset=entry.offset)).reshape(entry.shape)
