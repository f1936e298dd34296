"""Safetensors files: reading a checkpoint tensor by tensor, writing a sharded one."""
import dataclasses
import json
import math
import os
import struct

import numpy as np

from direct_file import DirectFile
from errors import WidenError

SINGLE = "model.safetensors"
SHARD = "model-{:05}-of-{:05}.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000  # the format's own limit
SOURCE_TYPES = {"BF16": np.dtype("<u2"), "F16": np.dtype("<f2"), "F32": np.dtype("<f4")}
# float16 has no exponents to spare for the shares, float32 holds all of its numbers.
WRITTEN_TYPES = {"BF16": "BF16", "F16": "F32", "F32": "F32"}


@dataclasses.dataclass(frozen=True)
class Source:
    path: str
    type: str
    shape: tuple
    offset: int  # in the file

    def read(self):
        count = math.prod(self.shape)
        values = np.fromfile(self.path, SOURCE_TYPES[self.type], count, offset=self.offset)
        if values.size != count:
            raise WidenError(f"{self.path} became shorter while it was read")
        return values.reshape(self.shape).astype(np.float32 if self.type == "F16" else values.dtype, copy=False)


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except FileNotFoundError:
        raise WidenError(f"{path} is missing") from None
    except (ValueError, RecursionError) as error:
        raise WidenError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise WidenError(f"{path}: the top level is no object")
    return value


def _naturals(value, count=None):
    fits = isinstance(value, list) and (count is None or len(value) == count)
    return fits and all(type(number) is int and 0 <= number < 1 << 62 for number in value)


def _source(path, name, entry, data_offset, data_bytes):
    def bad(what):
        return WidenError(f"{path}: tensor {name!r}: {what}")
    if not isinstance(entry, dict):
        raise bad("its entry is no object")
    type_name, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(type_name, str) or type_name not in SOURCE_TYPES:
        raise bad(f"dtype is {type_name!r}, expected one of {', '.join(SOURCE_TYPES)}")
    if not _naturals(shape) or not _naturals(offsets, 2):
        raise bad(f"shape {shape!r} and data_offsets {offsets!r}, expected lists of non-negative integers")
    begin, end = offsets
    if not begin <= end <= data_bytes or end - begin != math.prod(shape) * SOURCE_TYPES[type_name].itemsize:
        raise bad(f"data_offsets {offsets} do not fit {type_name} of shape {shape} in {data_bytes} bytes of data")
    return Source(path, type_name, tuple(shape), data_offset + begin)


def _read_header(path):
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))[0]
        if length > min(MAX_HEADER_BYTES, size - 8):
            raise WidenError(f"{path} is no safetensors file, or was cut: its header would not fit into its {size} bytes")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise WidenError(f"{path}: header: {error}") from None
    if not isinstance(header, dict):
        raise WidenError(f"{path}: header: the top level is no object")
    header.pop("__metadata__", None)
    return {name: _source(path, name, entry, 8 + length, size - 8 - length) for name, entry in header.items()}


def _shards(folder):
    single, index = (os.path.join(folder, name) for name in (SINGLE, INDEX))
    if os.path.exists(single) and os.path.exists(index):
        raise WidenError(f"{folder} has both {SINGLE} and {INDEX}; expected one of them, remove the other")
    if os.path.exists(single):
        return [single]
    if not os.path.exists(index):
        raise WidenError(f"{folder} has neither {SINGLE} nor {INDEX}")
    weight_map = read_json(index).get("weight_map")
    names = weight_map.values() if isinstance(weight_map, dict) else [None]
    if not all(isinstance(name, str) and os.path.basename(name) == name != "" for name in names):
        raise WidenError(f"{index}: expected an object \"weight_map\" of tensor names and file names without folder")
    return [os.path.join(folder, name) for name in sorted(set(names))]


def read_sources(folder):
    """{tensor: Source} of all shards."""
    sources = {}
    for path in _shards(folder):
        if not os.path.isfile(path):
            raise WidenError(f"shard {path} is missing; {INDEX} names it")
        for name, source in _read_header(path).items():
            if name in sources:
                raise WidenError(f"tensor {name!r} is in both {sources[name].path} and {path}")
            sources[name] = source
    return sources


def _header(entries):
    """entries: (name, type, shape, bytes). Padded so that the data begin at a multiple of 8 bytes."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, type_name, shape, count in entries:
        header[name] = {"dtype": type_name, "shape": shape, "data_offsets": [offset, offset + count]}
        offset += count
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _group(entries, shard_bytes):
    groups, filled = [[]], 0
    for entry in entries:
        if groups[-1] and filled + entry[-1] > shard_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(entry)
        filled += entry[-1]
    return groups


def write_shards(folder, entries, make_pieces, on_written, shard_bytes, note):
    """Writes model-0000i-of-0000n.safetensors and their index. entries: (name, type, shape, bytes) of every tensor;
    make_pieces(name) yields arrays that make up the tensor; on_written(bytes) hears of each, note(text) for the user."""
    groups = _group(entries, shard_bytes)
    weight_map = {}
    for number, group in enumerate(groups, 1):
        shard = SHARD.format(number, len(groups))
        with DirectFile(os.path.join(folder, shard)) as file:
            if number == 1 and not file.direct:
                note(f"{folder}: the file system has no O_DIRECT; writing through the page cache")
            file.write(_header(group))
            for name, _, _, expected in group:
                weight_map[name] = shard
                written = 0
                for piece in make_pieces(name):
                    file.write(piece)
                    written += piece.nbytes
                    on_written(piece.nbytes)
                assert written == expected, name
    total_bytes = sum(entry[-1] for entry in entries)
    write_json(os.path.join(folder, INDEX), {"metadata": {"total_size": total_bytes}, "weight_map": weight_map})


def write_json(path, value):
    with open(path, "x", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
