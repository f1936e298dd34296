#!/usr/bin/env python3
"""Write a Hugging Face checkpoint of a family that moed runs as a GGUF file, with the names and keys of llama.cpp's converter.

    make_gguf.py tests/model/data/mixtral tests/model/data/mixtral/model.gguf --type BF16

Tensor names come from the package itself. Matrices take the type asked for, vectors and routers F32. Quantised types need columns
that are multiples of their block.

Made with gguf 0.19.0, safetensors 0.8.0, torch 2.15.0, transformers 5.23.0.
"""

import argparse
import json
import pathlib
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

# By model_type.
ARCHITECTURES = {
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "olmoe": gguf.MODEL_ARCH.OLMOE,
    "gpt_oss": gguf.MODEL_ARCH.GPT_OSS,
}

PROJECTIONS = {"w1": "gate", "w3": "up", "w2": "down", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}


def neighbour_pairs(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of q or k from halves of a head to neighbouring pairs, which the architecture llama rotates."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def fused(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The experts of a layer as one tensor for each projection, under a name that the package knows."""
    result: dict[str, torch.Tensor] = {}
    experts: dict[str, dict[int, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if ".experts." not in name:
            result[name] = tensor
            continue
        block, rest = name.split(".experts.")
        number, projection, _ = rest.split(".")
        layer = block.split(".")[2]
        experts.setdefault(f"blk.{layer}.ffn_{PROJECTIONS[projection]}_exps.weight", {})[int(number)] = tensor
    for name, parts in experts.items():
        result[name] = torch.stack([parts[i] for i in range(len(parts))])
    return result


def gpt_oss(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gate and up apart, outputs before inputs, the numbers of MXFP4 as floats."""
    result: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith("_scales"):
            continue
        if name.endswith("_blocks"):
            name = name.removesuffix("_blocks")
            tensor = convert_moe_packed_tensors(tensor, tensors[name + "_scales"], dtype=torch.float32)
        if ".experts." in name:
            matrix = tensor.dim() == 3
            prefix, suffix = f"blk.{name.split('.')[2]}.ffn_", "_exps.weight" if matrix else "_exps.bias"
            rows = tensor.transpose(1, 2) if matrix else tensor
            if ".down_proj" in name:
                result[f"{prefix}down{suffix}"] = rows
            else:
                result[f"{prefix}gate{suffix}"], result[f"{prefix}up{suffix}"] = rows[:, ::2], rows[:, 1::2]
        else:
            result[name + ".weight" if name.endswith(".sinks") else name] = tensor
    return result


def add_gpt_oss_metadata(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    scaling = config["rope_scaling"]
    writer.add_sliding_window(config["sliding_window"])
    writer.add_expert_feed_forward_length(config["intermediate_size"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(scaling["factor"])
    writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])


def add_metadata(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    family = config["model_type"]
    heads = config["num_attention_heads"]
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", heads))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_expert_count(config.get("num_local_experts") or config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_vocab_size(config["vocab_size"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if family == "mixtral":
        writer.add_rope_dimension_count(config.get("head_dim") or config["hidden_size"] // heads)
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if family == "gpt_oss":
        add_gpt_oss_metadata(writer, config)
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: dict[str, Any], config: dict[str, Any], ends: list[int], pre: str) -> None:
    pieces = {number: piece for piece, number in tokenizer["model"]["vocab"].items()}
    types = dict.fromkeys(pieces, gguf.TokenType.NORMAL)
    for token in tokenizer["added_tokens"]:
        pieces[token["id"]] = token["content"]
        types[token["id"]] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    size = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([pieces.get(i, f"[PAD{i}]") for i in range(size)])
    writer.add_token_types([types.get(i, gguf.TokenType.UNUSED) for i in range(size)])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    if config.get("bos_token_id") is not None:
        writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(ends[0])
    if len(ends) > 1:
        writer.add_eot_token_id(ends[1])
    writer.add_add_bos_token(False)


def add_tensors(writer: gguf.GGUFWriter, folder: pathlib.Path, config: dict[str, Any], kind: gguf.GGMLQuantizationType) -> None:
    names = gguf.get_tensor_name_map(ARCHITECTURES[config["model_type"]], config["num_hidden_layers"])
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(file))
    for name, tensor in (gpt_oss if config["model_type"] == "gpt_oss" else fused)(tensors).items():
        if config["model_type"] == "mixtral" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            tensor = neighbour_pairs(tensor, heads)
        target = name if name.startswith("blk.") else names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise SystemExit(f"{name} has no name in GGUF files")
        data = tensor.to(torch.float32).numpy()
        plain = data.ndim < 2 or ".ffn_gate_inp" in target or target.endswith(".bias")
        written = gguf.GGMLQuantizationType.F32 if plain else kind
        writer.add_tensor(target, np.ascontiguousarray(gguf.quants.quantize(data, written)), raw_dtype=written)


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--type", default="BF16", help="of matrices, as GGUF names it (default: BF16)")
    parser.add_argument("--pre", default="gpt-2", help="name of the pre-tokenizer (default: gpt-2)")
    arguments = parser.parse_args()
    config = json.loads((arguments.checkpoint / "config.json").read_text())
    generation = arguments.checkpoint / "generation_config.json"
    ends = json.loads(generation.read_text()).get("eos_token_id") if generation.exists() else None
    ends = config["eos_token_id"] if ends is None else ends
    ends = ends if isinstance(ends, list) else [ends]
    writer = gguf.GGUFWriter(arguments.out, gguf.MODEL_ARCH_NAMES[ARCHITECTURES[config["model_type"]]])
    add_metadata(writer, config)
    add_tokenizer(writer, json.loads((arguments.checkpoint / "tokenizer.json").read_text()), config, ends, arguments.pre)
    add_tensors(writer, arguments.checkpoint, config, gguf.GGMLQuantizationType[arguments.type])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
