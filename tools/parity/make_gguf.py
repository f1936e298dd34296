#!/usr/bin/env python3
"""Convert a tiny checkpoint by llama.cpp's convert_hf_to_gguf.py, and keep the GGUF as its difference from the safetensors file.

    make_gguf.py LLAMA_CPP tests/model/data/mixtral

writes tests/model/data/mixtral/model.gguf.delta, from which and model.safetensors the tests (tests/model/gguf_delta.h) make the
very bytes of the converter's file. LLAMA_CPP is the folder vendor/llama.cpp of the source package of llama-cpp-python 0.3.36 on
PyPI.

The converter is run as it is, but for what a tiny checkpoint lacks: its pre-tokenizer is named here and not recognised by a
hash, its vocabulary is always read from tokenizer.json and as it stands there, the second end token is a key of its own, and some
configurations get keys that the released ones have (PREPARED). Checkpoints of Qwen3-Next and Qwen3.5 need `-- --no-mtp`.

The difference: u64 FNV-1a of the GGUF, then operations until the end. Each is a varint, count * 4 + kind, and what its kind says:
0, `count` bytes that follow; 1, `count` bytes of the safetensors file; 2, `count` BF16 numbers of it as F32. Kinds 1 and 2 have a
zigzag varint: where they begin, counted from the end of the one before.

Made with torch 2.15.0, transformers 5.23.0, sentencepiece 0.2.3, numpy 2.4.6, and the gguf of LLAMA_CPP.
"""

import argparse
import importlib
import json
import lzma
import pathlib
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

LITERAL, COPY, WIDEN = range(3)
WINDOW = 16  # bytes of the safetensors file that must agree before they are looked at
HUNYUAN_THETA = 10000.0 * 1000.0 ** (12 / 10)  # its alpha of 1000 for heads of 12, which the converter knows only for 128

# Of config.json, by model_type.
PREPARED: dict[str, dict[str, Any]] = {
    "granitemoehybrid": {"layer_types": ["mamba", "mamba", "attention", "mamba"]},
    "hunyuan_v1_moe": {
        "moe_intermediate_size": [18],
        "moe_topk": [2],
        "num_shared_expert": [1],
        "rope_scaling": {"rope_type": "default"},
        "rope_theta": HUNYUAN_THETA,
    },
    "minimax_m2": {"scoring_func": "sigmoid"},
    "mistral4": {"architectures": ["Mistral3ForConditionalGeneration"]},
    "nemotron_h": {"mamba_d_head": 7},
    "afmoe": {"route_norm": True, "score_func": "sigmoid"},
    "exaone_moe": {"scoring_func": "sigmoid"},
    "sarvam_moe": {
        "architectures": ["SarvamMoEForCausalLM"],
        "model_type": "sarvam",  # transformers' class, which the converter reads of the other, names these keys otherwise
        "num_experts": 7,
        "num_shared_experts": 1,
        "score_function": "sigmoid",
    },
    "solar_open": {"first_k_dense_replace": 0, "partial_rotary_factor": 1.0},
    "phimoe": {"architectures": ["PhiMoEForCausalLM"], "original_max_position_embeddings": 160},
    "smallthinker": {"sliding_window_size": 4096},  # llama.cpp knows no other
}


def convert(llama_cpp: pathlib.Path, folder: pathlib.Path, out: pathlib.Path, outtype: str, pre: str, extra: list[str]) -> None:
    """Runs the converter, whose modules are found in `llama_cpp`."""
    sys.path[:0] = [str(llama_cpp / "gguf-py"), str(llama_cpp)]
    base = importlib.import_module("conversion.base")
    config = json.loads((folder / "config.json").read_text())
    architecture = config["architectures"][0]
    model = importlib.import_module("conversion").get_model_class(architecture)
    ends = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]

    def set_vocab(self: Any) -> None:
        self._set_vocab_gpt2()
        self.gguf_writer.add_eot_token_id(ends[1])

    base.TextModel.get_vocab_base_pre = lambda _self, _tokenizer: pre
    if config["model_type"] == "mistral4":
        model = model.Mistral4Model  # within the other
    model.set_vocab = set_vocab
    # Some model types have a class of their own, which adds tokens.
    transformers = importlib.import_module("transformers")
    transformers.AutoTokenizer.from_pretrained = transformers.PreTrainedTokenizerFast.from_pretrained
    sys.argv = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(out), "--outtype", outtype, *extra]
    importlib.import_module("convert_hf_to_gguf").main()


def weights_of(checkpoint: pathlib.Path) -> bytes:
    return lzma.decompress((checkpoint / "model.safetensors.xz").read_bytes())


def prepare(checkpoint: pathlib.Path, folder: pathlib.Path) -> None:
    for name in ("config.json", "generation_config.json", "tokenizer.json"):
        shutil.copy(checkpoint / name, folder / name)
    (folder / "model.safetensors").write_bytes(weights_of(checkpoint))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    config = json.loads((folder / "config.json").read_text())
    config.update(PREPARED.get(config["model_type"], {}))
    (folder / "config.json").write_text(json.dumps(config))


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def varint(value: int) -> bytes:
    result = bytearray()
    while value >= 128:
        result.append(value % 128 + 128)
        value //= 128
    return bytes(result) + bytes([value])


def halves(data: bytes, at: int, count: int) -> bytes | None:
    """`count` F32 numbers as BF16, where they are such."""
    floats = data[at : at + 4 * count]
    if len(floats) < 4 * count or any(floats[0::4]) or any(floats[1::4]):
        return None
    return bytes(byte for i in range(count) for byte in floats[4 * i + 2 : 4 * i + 4])


def longest(source: bytes, begin: int, target: bytes, at: int, step: int) -> int:
    """How many numbers of 2 bytes from `begin` on are those of `step` bytes from `at` on; step 2 or 4."""
    count = 0
    while begin + 2 * count + 2 <= len(source) and at + step * (count + 1) <= len(target):
        number = source[begin + 2 * count : begin + 2 * count + 2]
        if target[at + step * count : at + step * (count + 1)] != bytes(step - 2) + number:
            break
        count += 1
    return count


def operations(source: bytes, target: bytes) -> Iterator[tuple[int, int, int]]:
    """(kind, where in the source or the target, count)."""
    places: dict[bytes, list[int]] = {}
    for begin in range(0, len(source) - WINDOW + 1, 2):
        places.setdefault(source[begin : begin + WINDOW], []).append(begin)
    at = literal = 0
    expected = 0  # where the last copy ended
    while at < len(target):
        found = (0, 0, 0)  # count, kind, begin
        for kind, window in ((COPY, target[at : at + WINDOW]), (WIDEN, halves(target, at, WINDOW // 2))):
            for begin in places.get(window, [])[:64] if window is not None else []:
                count = longest(source, begin, target, at, 2 if kind == COPY else 4)
                found = max(found, (count, kind, begin), key=lambda f: (f[0], f[2] == expected))
        count, kind, begin = found
        if count == 0:
            at += 1
            continue
        if literal < at:
            yield LITERAL, literal, at - literal
        yield kind, begin, count * 2 if kind == COPY else count
        at += count * (2 if kind == COPY else 4)
        literal = at
        expected = begin + 2 * count
    if literal < at:
        yield LITERAL, literal, at - literal


def delta(source: bytes, target: bytes) -> bytes:
    result = bytearray(struct.pack("<Q", fnv1a(target)))
    expected = 0
    for kind, begin, count in operations(source, target):
        result += varint(count * 4 + kind)
        if kind == LITERAL:
            result += target[begin : begin + count]
            continue
        step = begin - expected
        result += varint(step * 2 if step >= 0 else -step * 2 - 1)
        expected = begin + (count if kind == COPY else 2 * count)
    return bytes(result)


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("llama_cpp", type=pathlib.Path)
    parser.add_argument("checkpoint", type=pathlib.Path, help="gets model.gguf.delta")
    parser.add_argument("--type", default="bf16", help="--outtype of the converter (default: bf16)")
    parser.add_argument("--pre", default="gpt-2", help="name of the pre-tokenizer (default: gpt-2)")
    parser.add_argument("--gguf", type=pathlib.Path, help="where the GGUF itself is kept")
    parser.add_argument("more", nargs="*", help="flags of the converter, behind --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, arguments.checkpoint.name)
        folder.mkdir()
        prepare(arguments.checkpoint, folder)
        gguf = pathlib.Path(temporary, "model.gguf")
        convert(arguments.llama_cpp.resolve(), folder, gguf, arguments.type, arguments.pre, arguments.more)
        if arguments.gguf is not None:
            shutil.copy(gguf, arguments.gguf)
        target = gguf.read_bytes()
    made = delta(weights_of(arguments.checkpoint), target)
    (arguments.checkpoint / "model.gguf.delta").write_bytes(made)
    print(f"{arguments.checkpoint.name}: {len(target)} bytes of GGUF as {len(made)}")


if __name__ == "__main__":
    main()
