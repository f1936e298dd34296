"""Ling and Ring (BailingMoE), which transformers does not have: models of it that are the same functions, and their files' names.

The first version is Qwen2-MoE whose shared expert's gate is open, the second GLM-4.5 with norms of queries and keys.
"""

import json
import pathlib
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import Glm4MoeConfig, PretrainedConfig, Qwen2MoeConfig

SHARED: tuple[str, ...] = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
SHARED += ("moe_intermediate_size", "vocab_size", "max_position_embeddings", "bos_token_id", "eos_token_id", "norm_topk_prob")
SHARED += ("num_experts_per_tok", "rms_norm_eps", "hidden_act")


def ling_variants(common: dict[str, Any]) -> dict[str, PretrainedConfig]:
    return {
        "bailing_moe": Qwen2MoeConfig(
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            intermediate_size=38,
            moe_intermediate_size=14,
            shared_expert_intermediate_size=28,
            num_experts=5,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            qkv_bias=False,
            rope_parameters=dict(rope_type="default", rope_theta=6e5),
            **common,
        ),
        "bailing_moe_v2": Glm4MoeConfig(
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=8,
            intermediate_size=50,
            moe_intermediate_size=14,
            n_routed_experts=8,
            n_shared_experts=2,
            num_experts_per_tok=3,
            first_k_dense_replace=1,
            n_group=4,
            topk_group=2,
            norm_topk_prob=True,
            routed_scaling_factor=2.5,
            use_qk_norm=True,
            rope_parameters=dict(rope_type="default", rope_theta=6e5, partial_rotary_factor=0.5),
            **common,
        ),
    }


def fuse_heads(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    published = {}
    for name, tensor in tensors.items():
        name = name.replace("embed_tokens", "word_embeddings").replace(".shared_expert.", ".shared_experts.")
        name = name.replace("gate.e_score_correction_bias", "gate.expert_bias")
        layer, _, rest = name.partition(".self_attn.")
        attention = f"{layer}.attention."
        if rest == "q_proj.weight":
            parts = [tensors[f"{layer}.self_attn.{part}_proj.weight"] for part in "qkv"]
            published[attention + "query_key_value.weight"] = torch.cat(parts)
        elif rest in ("q_norm.weight", "k_norm.weight"):
            published[attention + ("query" if rest[0] == "q" else "key") + "_layernorm.weight"] = tensor
        elif rest == "o_proj.weight":
            published[attention + "dense.weight"] = tensor
        elif not rest:
            published[name] = tensor
    return published


def as_bailing(name: str, folder: pathlib.Path, config: PretrainedConfig) -> None:
    """The names of Ling-lite-1.5's or Ling-mini-2.0's published checkpoint and configuration."""
    save_file(fuse_heads(load_file(folder / "model.safetensors")), folder / "model.safetensors", metadata={"format": "pt"})
    published = {key: getattr(config, key) for key in SHARED} | {
        "architectures": ["BailingMoeForCausalLM"],
        "embedding_dropout": 0.0,
        "first_k_dense_replace": 0,
        "model_type": "bailing_moe",
        "norm_head": False,
        "norm_softmax": False,
        "num_experts": getattr(config, "n_routed_experts", None) or config.num_experts,
        "num_shared_experts": 2,
        "output_dropout": 0.0,
        "rope_scaling": None,
        "rope_theta": 600000,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_bias": False,
        "use_qkv_bias": False,
    }
    if name == "bailing_moe_v2":
        published |= {
            "architectures": ["BailingMoeV2ForCausalLM"],
            "first_k_dense_replace": 1,
            "head_dim": config.head_dim,
            "model_type": "bailing_moe_v2",
            "moe_router_enable_expert_bias": True,
            "moe_shared_expert_intermediate_size": config.moe_intermediate_size,
            "n_group": config.n_group,
            "num_nextn_predict_layers": 0,
            "partial_rotary_factor": 0.5,
            "routed_scaling_factor": config.routed_scaling_factor,
            "router_dtype": "fp32",
            "score_function": "sigmoid",
            "topk_group": config.topk_group,
            "use_qk_norm": True,
            "use_rmsnorm": True,
        }
    (folder / "config.json").write_text(json.dumps(published, indent=2, sort_keys=True) + "\n")
