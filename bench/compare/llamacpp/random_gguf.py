#!/usr/bin/env python3
"""Writes a GGUF file with the head and expert shapes of a released model, random weights and as many layers as fit a size.

  python3 bench/compare/llamacpp/random_gguf.py qwen3-30b-a3b OUT.gguf --gigabytes 2
  python3 bench/compare/llamacpp/random_gguf.py gpt-oss-20b OUT.gguf --narrow 9    # 24 layers, 32 experts, and little to compute

For speed alone: what it says means nothing. Types are those of the file that most people download (Q4_K_M, or MXFP4 with Q8_0).
The vocabulary shrinks with the number of layers, so that the head keeps its share of a token. The tokenizer is the demo model's.
"""

import argparse
import math
import os
import pathlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

if not __package__:  # run by its path
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[3])

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from bench.compare import ROOT
from bench.compare.llamacpp import gguf_from_checkpoint
from tools.widen.checkpoint import Array

DEVIATION = 0.02  # of the weights
CHUNK_BLOCKS = 1 << 16
SUPER_BLOCK = 256  # weights of K-quants; rows of another length are of a type with short blocks
TOKENIZER = os.path.join(ROOT, "models", "tales-qwen")


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention, queries in one matrix."""

    kv_rank: int
    rope: int  # dimensions of a head that turn with the position
    nope: int  # and that do not
    key_type: Type  # of the matrix from a row of the cache to keys, whose rows are short


@dataclass(frozen=True)
class Shape:
    """Of a released model, and what its usual file holds in which type."""

    architecture: str
    layers: int
    vocabulary: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    top_k: int
    expert_ffn: int
    expert_types: tuple[Type, Type]  # of gate and up, and of down: the latter in every second layer
    trunk_type: Type
    embedding_types: tuple[Type, Type]  # embedding, head
    norms: tuple[str, ...]  # of a layer beside attn_norm
    biases: bool = False
    latent: Latent | None = None
    shared_ffn: int = 0
    dense_ffn: int = 0  # of the first layer; 0: it has experts as all others
    keys: dict[str, float | int | str] = field(default_factory=dict)


SHAPES = {
    "qwen3-30b-a3b": Shape(
        architecture="qwen3moe",
        layers=48,
        vocabulary=151936,
        hidden=2048,
        heads=32,
        kv_heads=4,
        head_dim=128,
        experts=128,
        top_k=8,
        expert_ffn=768,
        expert_types=(Type.Q4_K, Type.Q6_K),
        trunk_type=Type.Q4_K,
        embedding_types=(Type.Q4_K, Type.Q6_K),
        norms=("ffn_norm",),
        keys={"rope.freq_base": 1e6},
    ),
    "gpt-oss-20b": Shape(
        architecture="gpt-oss",
        layers=24,
        vocabulary=201088,
        hidden=2880,
        heads=64,
        kv_heads=8,
        head_dim=64,
        experts=32,
        top_k=4,
        expert_ffn=2880,
        expert_types=(Type.MXFP4, Type.MXFP4),
        trunk_type=Type.Q8_0,
        embedding_types=(Type.Q8_0, Type.Q8_0),
        norms=("post_attention_norm",),
        biases=True,
        keys={
            "rope.freq_base": 150000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 4096,
            "attention.sliding_window": 128,
        },
    ),
    "deepseek-v2-lite": Shape(
        architecture="deepseek2",
        layers=27,
        vocabulary=102400,
        hidden=2048,
        heads=16,
        kv_heads=1,
        head_dim=128,  # of values
        experts=64,
        top_k=6,
        expert_ffn=1408,
        expert_types=(Type.Q4_K, Type.Q8_0),
        trunk_type=Type.Q4_K,
        embedding_types=(Type.Q4_K, Type.Q6_K),
        norms=("ffn_norm",),
        latent=Latent(kv_rank=512, rope=64, nope=128, key_type=Type.Q5_0),
        shared_ffn=2816,
        dense_ffn=10944,
        keys={
            "rope.freq_base": 1e4,
            "leading_dense_block_count": 1,
            "expert_shared_count": 2,
            "expert_weights_scale": 1.0,
            "rope.dimension_count": 64,
            "attention.q_lora_rank": 0,  # without it llama.cpp knows only the whole model by its number of layers
            "attention.kv_lora_rank": 512,
            "attention.key_length_mla": 192,
            "attention.value_length_mla": 128,
        },
    ),
}


def _half(value: float) -> Array:
    return np.frombuffer(np.float16(value).tobytes(), np.uint8)


def random_blocks(kind: Type, count: int, random: np.random.Generator) -> Array:
    """(count, bytes of a block): every code, one scale, mean 0 and standard deviation DEVIATION."""
    blocks = random.integers(0, 256, (count, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
    if kind == Type.Q4_K:  # d * 32 * q - dmin * 32, q of 0 to 15; scales and minima of 6 bits are all 32
        step = DEVIATION / 32 / 4.61
        blocks[:, 0:2], blocks[:, 2:4] = _half(step), _half(7.5 * step)
        blocks[:, 4:16] = [160] * 8 + [0] * 4
    elif kind == Type.Q6_K:  # d * 8 * (q - 32), q of 0 to 63
        blocks[:, 192:208], blocks[:, 208:210] = 8, _half(DEVIATION / 8 / 18.47)
    elif kind == Type.Q8_0:  # d * q
        blocks[:, 0:2] = _half(DEVIATION / 73.9)
    elif kind == Type.Q5_0:  # d * (q - 16), q of 0 to 31
        blocks[:, 0:2] = _half(DEVIATION / 9.23)
    elif kind == Type.MXFP4:  # 2^(e - 127) times up to 6: 0.0229
        blocks[:, 0] = 127 - 7
    else:
        raise ValueError(f"no random blocks of {kind.name}")
    return blocks


@dataclass(frozen=True)
class Matrix:
    name: str
    shape: tuple[int, ...]  # the last is that of a row
    type: Type

    def blocks(self) -> int:
        return math.prod(self.shape) // int(gguf.GGML_QUANT_SIZES[self.type][0])

    def size(self) -> int:
        return self.blocks() * int(gguf.GGML_QUANT_SIZES[self.type][1])


@dataclass(frozen=True)
class Floats:
    name: str
    shape: tuple[int, ...]
    mean: float = 0.0


Tensor = Matrix | Floats


def attention_tensors(shape: Shape, at: str) -> Iterator[Tensor]:
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for name, rows, cols in (
        ("q", q, shape.hidden),
        ("k", kv, shape.hidden),
        ("v", kv, shape.hidden),
        ("output", shape.hidden, q),
    ):
        yield Matrix(f"{at}attn_{name}.weight", (rows, cols), shape.trunk_type)
        if shape.biases:
            yield Floats(f"{at}attn_{name}.bias", (rows,))
    if shape.architecture == "qwen3moe":
        yield from (Floats(f"{at}attn_{name}_norm.weight", (shape.head_dim,), 1) for name in ("q", "k"))
    if shape.architecture == "gpt-oss":
        yield Floats(at + "attn_sinks.weight", (shape.heads,))


def latent_tensors(shape: Shape, latent: Latent, at: str) -> Iterator[Tensor]:
    kind = shape.trunk_type
    yield Matrix(at + "attn_q.weight", (shape.heads * (latent.nope + latent.rope), shape.hidden), kind)
    yield Matrix(at + "attn_kv_a_mqa.weight", (latent.kv_rank + latent.rope, shape.hidden), kind)
    yield Floats(at + "attn_kv_a_norm.weight", (latent.kv_rank,), 1)
    yield Matrix(at + "attn_k_b.weight", (shape.heads, latent.kv_rank, latent.nope), latent.key_type)
    yield Matrix(at + "attn_v_b.weight", (shape.heads, shape.head_dim, latent.kv_rank), kind)
    yield Matrix(at + "attn_output.weight", (shape.hidden, shape.heads * shape.head_dim), kind)


def ffn_tensors(hidden: int, ffn: int, at: str, kinds: tuple[Type, Type], suffix: str = "") -> Iterator[Matrix]:
    yield from (Matrix(f"{at}ffn_{name}{suffix}.weight", (ffn, hidden), kinds[0]) for name in ("gate", "up"))
    yield Matrix(f"{at}ffn_down{suffix}.weight", (hidden, ffn), kinds[1])


def expert_tensors(shape: Shape, layer: int, at: str) -> Iterator[Tensor]:
    yield Floats(at + "ffn_gate_inp.weight", (shape.experts, shape.hidden))
    if shape.biases:
        yield Floats(at + "ffn_gate_inp.bias", (shape.experts,))
    down = shape.expert_types[1] if layer % 2 == 0 or shape.expert_ffn % SUPER_BLOCK else shape.expert_types[0]
    for matrix in ffn_tensors(shape.hidden, shape.expert_ffn, at, (shape.expert_types[0], down), "_exps"):
        yield Matrix(matrix.name, (shape.experts, *matrix.shape), matrix.type)
        if shape.biases:
            yield Floats(matrix.name.replace(".weight", ".bias"), (shape.experts, matrix.shape[0]))


def layer_tensors(shape: Shape, layer: int) -> Iterator[Tensor]:
    at = f"blk.{layer}."
    yield Floats(at + "attn_norm.weight", (shape.hidden,), 1)
    yield from latent_tensors(shape, shape.latent, at) if shape.latent else attention_tensors(shape, at)
    yield from (Floats(f"{at}{name}.weight", (shape.hidden,), 1) for name in shape.norms)
    if shape.dense_ffn and layer == 0:
        yield from ffn_tensors(shape.hidden, shape.dense_ffn, at, (shape.expert_types[0], Type.Q8_0))
        return
    if shape.shared_ffn:
        yield from ffn_tensors(shape.hidden, shape.shared_ffn, at, (shape.trunk_type, Type.Q6_K), "_shexp")
    yield from expert_tensors(shape, layer, at)


def all_tensors(shape: Shape, layers: int, vocabulary: int) -> Iterator[Tensor]:
    yield Matrix("token_embd.weight", (vocabulary, shape.hidden), shape.embedding_types[0])
    yield Floats("output_norm.weight", (shape.hidden,), 1)
    yield Matrix("output.weight", (vocabulary, shape.hidden), shape.embedding_types[1])
    for layer in range(layers):
        yield from layer_tensors(shape, layer)


def size_of(tensors: Iterator[Tensor]) -> int:
    return sum(tensor.size() if isinstance(tensor, Matrix) else 4 * math.prod(tensor.shape) for tensor in tensors)


def layers_for(shape: Shape, wanted_bytes: float) -> int:
    """At least two, so that both kinds of layers are there."""
    return max(2, min(shape.layers, round(wanted_bytes / size_of(layer_tensors(shape, 2)))))


def add_keys(writer: gguf.GGUFWriter, shape: Shape, layers: int, vocabulary: int) -> None:
    writer.add_name("random")
    writer.add_context_length(32768)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(shape.dense_ffn or shape.expert_ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.latent.kv_rank + shape.latent.rope if shape.latent else shape.head_dim)
    writer.add_value_length(shape.latent.kv_rank if shape.latent else shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_expert_count(shape.experts)
    writer.add_expert_used_count(shape.top_k)
    writer.add_expert_feed_forward_length(shape.expert_ffn)
    writer.add_vocab_size(vocabulary)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for key, value in shape.keys.items():
        key = f"{shape.architecture}.{key}"
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, int(value))
    config = {**gguf_from_checkpoint.read_config(TOKENIZER), "vocab_size": vocabulary}
    gguf_from_checkpoint.add_tokenizer(writer, TOKENIZER, config)


def declare(writer: gguf.GGUFWriter, tensor: Tensor) -> None:
    if isinstance(tensor, Floats):
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), 4 * math.prod(tensor.shape))
        return
    block, block_bytes = gguf.GGML_QUANT_SIZES[tensor.type]
    encoded = (*tensor.shape[:-1], tensor.shape[-1] // block * block_bytes)
    writer.add_tensor_info(tensor.name, encoded, np.dtype(np.uint8), tensor.size(), raw_dtype=tensor.type)


def numbers(tensor: Tensor, random: np.random.Generator) -> Array:
    if isinstance(tensor, Floats):
        return random.normal(tensor.mean, DEVIATION, tensor.shape).astype(np.float32)
    parts = range(0, tensor.blocks(), CHUNK_BLOCKS)
    return np.concatenate(
        [random_blocks(tensor.type, min(CHUNK_BLOCKS, tensor.blocks() - part), random).reshape(-1) for part in parts]
    )


def narrowed(shape: Shape, by: int) -> Shape:
    """The same layers, experts and heads' dimensions, with a `by`-th of everything else. Of the hidden width that has to be a
    whole number of blocks."""
    if by < 1 or shape.latent or shape.hidden % (32 * by) or shape.expert_ffn % (32 * by):
        raise SystemExit(
            f"--narrow {by}: {shape.hidden} and {shape.expert_ffn} do not divide into blocks of 32, or keys are latent"
        )
    kv_heads = max(1, shape.kv_heads // by)
    return replace(
        shape,
        hidden=shape.hidden // by,
        expert_ffn=shape.expert_ffn // by,
        heads=max(1, shape.heads // by // kv_heads) * kv_heads,
        kv_heads=kv_heads,
        vocabulary=shape.vocabulary // by,
    )


def write(shape: Shape, out: str, wanted_bytes: float) -> None:
    layers = layers_for(shape, wanted_bytes)
    vocabulary = max(8192, shape.vocabulary * layers // shape.layers // 256 * 256)
    tensors = list(all_tensors(shape, layers, vocabulary))
    writer = gguf.GGUFWriter(out + ".partial", shape.architecture)
    add_keys(writer, shape, layers, vocabulary)
    for tensor in tensors:
        declare(writer, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.default_rng(1)
    for tensor in tensors:
        writer.write_tensor_data(numbers(tensor, random))
    writer.close()
    os.replace(out + ".partial", out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out")
    parser.add_argument("--gigabytes", type=float, default=2, help="about so many [%(default)s]")
    parser.add_argument("--narrow", type=int, default=1, metavar="N", help="widths by N, for routing alone [%(default)s]")
    given = parser.parse_args()
    write(narrowed(SHAPES[given.shape], given.narrow), given.out, given.gigabytes * 1e9)


if __name__ == "__main__":
    main()
