"""Reads tensors of a checkpoint folder of safetensors files as float32, one at a time, with nothing but numpy."""
import glob
import json
import os

import numpy as np


class CheckpointError(Exception):
    """The checkpoint cannot be used; the text says why."""


def _from_bfloat16(words):
    return (words.astype(np.uint32) << 16).view(np.float32)


# Name in the header -> how it lies in the file, how it becomes float32.
NUMBERS = {"F32": (np.float32, lambda x: x.astype(np.float32)), "F16": (np.float16, lambda x: x.astype(np.float32)),
           "BF16": (np.uint16, _from_bfloat16)}


class SafetensorsFolder:
    def __init__(self, folder):
        self._entries = {}  # name -> (path, offset of the data, number type, shape)
        paths = sorted(glob.glob(os.path.join(folder, "*.safetensors")))
        if not paths:
            raise CheckpointError(f"{folder}: no *.safetensors")
        for path in paths:
            self._read_header(path)

    def _read_header(self, path):
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
            wanted = int(np.prod(entry["shape"], dtype=np.int64)) * np.dtype(NUMBERS[entry["dtype"]][0]).itemsize
            if end - begin != wanted or 8 + length + end > size:
                raise CheckpointError(f"{path}: {name} of shape {entry['shape']} does not fit its place {begin}..{end}")
            self._entries[name] = (path, 8 + length + begin, entry["dtype"], tuple(entry["shape"]))

    def __contains__(self, name):
        return name in self._entries

    def _entry(self, name):
        if name not in self._entries:
            raise CheckpointError(f"the checkpoint has no tensor {name}")
        return self._entries[name]

    def shape(self, name):
        return self._entry(name)[3]

    def read(self, name):
        path, offset, dtype, shape = self._entry(name)
        stored, to_float32 = NUMBERS[dtype]
        count = int(np.prod(shape, dtype=np.int64))
        return to_float32(np.fromfile(path, stored, count, offset=offset)).reshape(shape)
