"""Safetensors files: reading a checkpoint tensor by tensor, writing a sharded one."""

import dataclasses
import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from .direct_file import DirectFile
from .errors import WidenError

SINGLE = "model.safetensors"
SHARD = "model-{:05}-of-{:05}.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000  # the format's own limit
SOURCE_TYPES: dict[str, np.dtype[Any]] = {"BF16": np.dtype("<u2"), "F16": np.dtype("<f2"), "F32": np.dtype("<f4")}
# float16 has no exponents to spare for the shares, float32 holds all of its numbers.
WRITTEN_TYPES = {"BF16": "BF16", "F16": "F32", "F32": "F32"}


Array = NDArray[Any]
OnWritten = Callable[[int], None]  # so many bytes more are written


@dataclasses.dataclass(frozen=True)
class Source:
    """A tensor that can be read."""

    path: str
    type: str
    shape: tuple[int, ...]
    offset: int  # in the file

    def read(self) -> Array:
        count = math.prod(self.shape)
        values = np.fromfile(self.path, SOURCE_TYPES[self.type], count, offset=self.offset)
        if values.size != count:
            raise WidenError(f"{self.path} became shorter while it was read")
        return values.reshape(self.shape).astype(np.float32 if self.type == "F16" else values.dtype, copy=False)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A tensor that is to be written."""

    name: str
    type: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * SOURCE_TYPES[self.type].itemsize


def read_json(path: str) -> dict[str, Any]:
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


def _naturals(value: Any, count: int | None = None) -> TypeGuard[list[int]]:
    fits = isinstance(value, list) and (count is None or len(value) == count)
    return fits and all(type(number) is int and 0 <= number < 1 << 62 for number in value)


def _source(path: str, name: str, entry: Any, data_offset: int, data_bytes: int) -> Source:
    def bad(what: str) -> WidenError:
        return WidenError(f"{path}: tensor {name!r}: {what}")

    if not isinstance(entry, dict):
        raise bad("its entry is no object")
    type_name, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(type_name, str) or type_name not in SOURCE_TYPES:
        raise bad(f"dtype is {type_name!r}, expected one of {', '.join(SOURCE_TYPES)}")
    if not _naturals(shape) or not _naturals(offsets, 2):
        raise bad(f"shape {shape!r} and data_offsets {offsets!r}, expected lists of non-negative integers")
    begin, end = offsets
    if not begin <= end <= data_bytes or end - begin != math.prod(shape) * SOURCE_TYPES[type_name].itemsize:
        raise bad(f"data_offsets {offsets} do not fit {type_name} of shape {shape} in {data_bytes} bytes of data")
    return Source(path, type_name, tuple(shape), data_offset + begin)


def _read_header(path: str) -> dict[str, Source]:
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


def _shards(folder: str) -> list[str]:
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
        raise WidenError(f'{index}: expected an object "weight_map" of tensor names and file names without folder')
    return [os.path.join(folder, name) for name in sorted(set(names))]


def read_sources(folder: str) -> dict[str, Source]:
    """{tensor: Source} of all shards."""
    sources: dict[str, Source] = {}
    for path in _shards(folder):
        if not os.path.isfile(path):
            raise WidenError(f"shard {path} is missing; {INDEX} names it")
        for name, source in _read_header(path).items():
            if name in sources:
                raise WidenError(f"tensor {name!r} is in both {sources[name].path} and {path}")
            sources[name] = source
    return sources


def _header(entries: Iterable[Entry]) -> bytes:
    """Padded so that the data begin at a multiple of 8 bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for entry in entries:
        header[entry.name] = {"dtype": entry.type, "shape": entry.shape, "data_offsets": [offset, offset + entry.bytes]}
        offset += entry.bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _group(entries: Iterable[Entry], shard_bytes: int) -> list[list[Entry]]:
    groups: list[list[Entry]] = [[]]
    filled = 0
    for entry in entries:
        if groups[-1] and filled + entry.bytes > shard_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(entry)
        filled += entry.bytes
    return groups


def write_shards(
    folder: str,
    entries: Sequence[Entry],
    make_pieces: Callable[[str], Iterable[Array]],
    on_written: OnWritten,
    shard_bytes: int,
    note: Callable[[str], None],
) -> None:
    """Writes model-0000i-of-0000n.safetensors and their index. make_pieces(name) gives arrays that make up the tensor;
    on_written hears of each, note is for the user."""
    groups = _group(entries, shard_bytes)
    weight_map = {}
    for number, group in enumerate(groups, 1):
        shard = SHARD.format(number, len(groups))
        with DirectFile(os.path.join(folder, shard)) as file:
            if number == 1 and not file.direct:
                note(f"{folder}: the file system has no O_DIRECT; writing through the page cache")
            file.write(_header(group))
            for entry in group:
                weight_map[entry.name] = shard
                written = 0
                for piece in make_pieces(entry.name):
                    file.write(piece)
                    written += piece.nbytes
                    on_written(piece.nbytes)
                assert written == entry.bytes, entry.name
    total_bytes = sum(entry.bytes for entry in entries)
    write_json(os.path.join(folder, INDEX), {"metadata": {"total_size": total_bytes}, "weight_map": weight_map})


def write_json(path: str, value: dict[str, Any]) -> None:
    with open(path, "x", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
