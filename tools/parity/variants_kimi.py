"""Kimi-Linear's variant of make_golden.py, its weights, and its checkpoint as it is released."""

import json
import pathlib
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import KimiLinearConfig, PretrainedConfig


def kimi_variants(common: dict[str, Any]) -> dict[str, PretrainedConfig]:
    return {
        # The dense layer is recurrent; latent attention has as many heads as the others, since GGUF files have one number.
        "kimi_linear": KimiLinearConfig(
            hidden_size=34,
            num_hidden_layers=4,
            num_attention_heads=3,
            num_key_value_heads=3,
            intermediate_size=22,
            moe_intermediate_size=10,
            num_local_experts=7,
            n_shared_experts=1,
            num_experts_per_tok=3,
            q_lora_rank=None,
            kv_lora_rank=24,
            qk_nope_head_dim=10,
            qk_rope_head_dim=6,
            v_head_dim=8,
            linear_num_heads=3,
            linear_head_dim=11,
            linear_conv_kernel_dim=4,
            layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
            pad_token_id=0,
            **common,
        )
    }


def kimi_weight(name: str, noise: torch.Tensor) -> torch.Tensor | None:
    """Decays that forget some tokens soon and others hardly; None: as in the other families."""
    return noise - 1 if name.endswith(".A_log") else None


def as_kimi_linear(folder: pathlib.Path) -> None:
    """The names of Kimi-Linear-48B-A3B's published checkpoint and configuration."""
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    types = config.pop("layer_types")
    dense = config.pop("mlp_layer_types").count("dense")
    published = {}
    for name, tensor in tensors.items():
        if any(name.startswith(f"model.layers.{layer}.") for layer in range(dense)):
            name = name.replace(".block_sparse_moe.", ".mlp.")
        published[name] = tensor
    save_file(published, folder / "model.safetensors", metadata={"format": "pt"})
    config["linear_attn_config"] = {
        "full_attn_layers": [i + 1 for i, kind in enumerate(types) if kind == "full_attention"],
        "kda_layers": [i + 1 for i, kind in enumerate(types) if kind == "linear_attention"],
        "num_heads": config.pop("linear_num_heads"),
        "head_dim": config.pop("linear_head_dim"),
        "short_conv_kernel_size": config.pop("linear_conv_kernel_dim"),
    }
    config |= {
        "first_k_dense_replace": dense,
        "head_dim": config["hidden_size"] // config["num_attention_heads"],
        "mla_use_nope": True,
        "moe_layer_freq": 1,
        "moe_router_activation_func": "sigmoid",
        "num_nextn_predict_layers": 0,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "use_grouped_topk": True,
    }
    for unpublished in ("qk_head_dim", "attention_bias", "output_router_logits"):
        config.pop(unpublished, None)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
