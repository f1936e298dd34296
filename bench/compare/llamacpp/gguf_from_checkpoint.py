"""Writes a GGUF file from a Mixture-of-Experts checkpoint in Hugging Face format, so that llama.cpp can be run beside moed.

Matrices get the type named, quantised by the gguf package's own routines; routers, norms and biases stay float32. One tensor of
the file is in memory at a time. The tokenizer is carried over with its vocabulary and merges, its pre-tokenizer is called
"gpt-2": feed token ids where that matters.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np

from tools.widen.checkpoint import Array, Source, read_sources
from tools.widen.errors import WidenError

from .. import CompareError

TYPES = {
    "bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0),
}
Config = dict[str, Any]  # config.json
# model_type -> what llama.cpp calls the architecture
ARCHITECTURES = {"qwen2_moe": "qwen2moe", "mixtral": "llama"}


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    quantised: bool
    parts: Callable[[], Iterable[Array]]  # 2-d matrices that follow each other, or the one vector


def read_config(folder: str) -> Config:
    path = os.path.join(folder, "config.json")
    try:
        with open(path) as file:
            config: Config = json.load(file)
    except (OSError, ValueError) as error:
        raise CompareError(f"{path}: {error}") from None
    family = config.get("model_type")
    if family not in ARCHITECTURES:
        raise CompareError(f"{path}: model_type {family!r}; this can write {', '.join(ARCHITECTURES)}")
    if family == "qwen2_moe" and config.get("norm_topk_prob"):
        raise CompareError(f"{path}: norm_topk_prob is true, which llama.cpp's {ARCHITECTURES[family]} does not compute")
    return config


def as_float32(source: Source) -> Array:
    values = source.read()
    return (values.astype(np.uint32) << 16).view(np.float32) if source.type == "BF16" else values.astype(np.float32, copy=False)


def interleaved(matrix: Array, heads: int) -> Array:
    """Rows of queries and keys in the rotary order of llama.cpp's "llama": pairs side by side instead of half a head apart."""
    rows = matrix.shape[0]
    return matrix.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(matrix.shape)


class Plan:
    """The tensors of the file in order, each with where it comes from."""

    def __init__(self, config: Config, sources: dict[str, Source]):
        self.config, self.sources = config, sources
        self.mixtral = config["model_type"] == "mixtral"
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.experts = config.get("num_experts") or config["num_local_experts"]

    def _shape(self, name: str) -> tuple[int, ...]:
        if name not in self.sources:
            raise CompareError(f"the checkpoint has no tensor {name}")
        return self.sources[name].shape

    def _read(self, name: str) -> Array:
        return as_float32(self.sources[name])

    def tensors(self) -> Iterator[Tensor]:
        has_head = "lm_head.weight" in self.sources
        yield self._tensor("token_embd.weight", "model.embed_tokens.weight")
        yield self._tensor("output_norm.weight", "model.norm.weight")
        yield self._tensor("output.weight", "lm_head.weight" if has_head else "model.embed_tokens.weight")
        for layer in range(self.config["num_hidden_layers"]):
            yield from self._layer(f"model.layers.{layer}.", f"blk.{layer}.")

    def _layer(self, source: str, target: str) -> Iterator[Tensor]:
        yield self._tensor(target + "attn_norm.weight", source + "input_layernorm.weight")
        yield self._tensor(target + "ffn_norm.weight", source + "post_attention_layernorm.weight")
        for ours, theirs, heads in (("q", "q", self.heads), ("k", "k", self.kv_heads), ("v", "v", 0), ("o", "output", 0)):
            projection = f"{source}self_attn.{ours}_proj"
            yield self._tensor(f"{target}attn_{theirs}.weight", projection + ".weight", heads if self.mixtral else 0)
            if projection + ".bias" in self.sources:
                yield self._tensor(f"{target}attn_{theirs}.bias", projection + ".bias")
        block = source + ("block_sparse_moe." if self.mixtral else "mlp.")
        names = ("w1", "w3", "w2") if self.mixtral else ("gate_proj", "up_proj", "down_proj")
        matrices = dict(zip(("gate", "up", "down"), names, strict=True))
        if not self.mixtral:
            shared_gate = block + "shared_expert_gate.weight"
            yield Tensor(
                target + "ffn_gate_inp_shexp.weight",
                (self._shape(shared_gate)[1],),
                False,
                lambda: [self._read(shared_gate).reshape(-1)],
            )
            for theirs, ours in matrices.items():
                yield self._tensor(f"{target}ffn_{theirs}_shexp.weight", f"{block}shared_expert.{ours}.weight")
        yield self._tensor(target + "ffn_gate_inp.weight", block + "gate.weight", quantised=False)
        for theirs, ours in matrices.items():
            yield self._stack(
                f"{target}ffn_{theirs}_exps.weight", [f"{block}experts.{e}.{ours}.weight" for e in range(self.experts)]
            )

    def _tensor(self, name: str, source: str, interleaved_heads: int = 0, quantised: bool | None = None) -> Tensor:
        shape = self._shape(source)
        if quantised is None:
            quantised = len(shape) == 2

        def parts() -> Iterator[Array]:
            array = self._read(source)
            yield interleaved(array, interleaved_heads) if interleaved_heads else array

        return Tensor(name, shape, quantised, parts)

    def _stack(self, name: str, sources: Sequence[str]) -> Tensor:
        return Tensor(name, (len(sources), *self._shape(sources[0])), True, lambda: (self._read(s) for s in sources))


def add_model(writer: gguf.GGUFWriter, config: Config, name: str, file_type: gguf.LlamaFileType) -> None:
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_name(name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config.get("shared_expert_intermediate_size") or config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_expert_count(config.get("num_experts") or config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    if config["model_type"] == "qwen2_moe":
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def add_tokenizer(writer: gguf.GGUFWriter, folder: str, config: Config) -> None:
    path = os.path.join(folder, "tokenizer.json")
    try:
        with open(path) as file:
            tokenizer = json.load(file)
        model = tokenizer["model"]
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
        special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        ids = {**model["vocab"], **special}
    except (OSError, ValueError, KeyError) as error:
        raise CompareError(f"{path}: no byte-pair tokenizer with vocab and merges: {error!r}") from None
    tokens = [f"[unused{i}]" for i in range(config["vocab_size"])]
    for text, token_id in ids.items():
        if not 0 <= token_id < len(tokens):
            raise CompareError(f"{path}: token {text!r} has id {token_id}, vocab_size is {len(tokens)}")
        tokens[token_id] = text
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if text in special else gguf.TokenType.NORMAL for text in tokens])
    writer.add_token_merges(merges)
    for key, add in (("eos_token_id", writer.add_eos_token_id), ("bos_token_id", writer.add_bos_token_id)):
        token_id = config.get(key)
        if isinstance(token_id, list):
            token_id = token_id[0]
        if token_id is not None:
            add(token_id)
    writer.add_add_bos_token(False)


def encode(tensor: Tensor, type_: gguf.GGMLQuantizationType) -> Iterator[Array]:
    for part in tensor.parts():
        yield gguf.quants.quantize(part, type_) if tensor.quantised else part.astype(np.float32)


def declare(writer: gguf.GGUFWriter, tensor: Tensor, type_: gguf.GGMLQuantizationType) -> None:
    block, block_bytes = gguf.GGML_QUANT_SIZES[type_]
    if not tensor.quantised:
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), math.prod(tensor.shape) * 4)
        return
    if tensor.shape[-1] % block:
        raise CompareError(f"{tensor.name}: rows of {tensor.shape[-1]} weights are no multiple of the block of {block}")
    encoded = (*tensor.shape[:-1], tensor.shape[-1] // block * block_bytes)
    writer.add_tensor_info(tensor.name, encoded, np.dtype(np.uint8), math.prod(encoded), raw_dtype=type_)


def write_gguf(folder: str, out: str, kind: str) -> None:
    """`kind` is one of TYPES."""
    type_, file_type = TYPES[kind]
    config = read_config(folder)
    try:
        tensors = list(Plan(config, read_sources(folder)).tensors())
    except WidenError as error:
        raise CompareError(str(error)) from None
    partial = out + ".partial"
    writer = gguf.GGUFWriter(partial, ARCHITECTURES[config["model_type"]])
    add_model(writer, config, os.path.basename(os.path.normpath(folder)), file_type)
    add_tokenizer(writer, folder, config)
    for tensor in tensors:
        declare(writer, tensor, type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(np.concatenate([np.ascontiguousarray(part) for part in encode(tensor, type_)]))
    writer.close()
    os.replace(partial, out)
