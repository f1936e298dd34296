"""The variants of make_golden.py whose layers are Gated DeltaNets for the most part."""

from typing import Any

import torch
from transformers import PretrainedConfig, Qwen3_5MoeTextConfig, Qwen3NextConfig


def delta_net_variants(common: dict[str, Any]) -> dict[str, PretrainedConfig]:
    shape: dict[str, Any] = dict(
        hidden_size=34,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=10,
        moe_intermediate_size=10,
        shared_expert_intermediate_size=14,
        num_experts=5,
        num_experts_per_tok=2,
        rope_parameters=dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=0.4),
        linear_num_key_heads=2,
        **common,
    )
    return {
        # The dense layer is recurrent; three value heads share a key head.
        "qwen3_next": Qwen3NextConfig(
            intermediate_size=22,
            mlp_only_layers=[1],
            layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
            linear_num_value_heads=6,
            linear_key_head_dim=11,
            linear_value_head_dim=7,
            linear_conv_kernel_dim=4,
            **shape,
        ),
        # All experts of a layer in one tensor, as they are released; a key head for each value head.
        "qwen3_5_moe_text": Qwen3_5MoeTextConfig(
            linear_num_value_heads=2, linear_key_head_dim=9, linear_value_head_dim=17, linear_conv_kernel_dim=3, **shape
        ),
    }


def delta_net_weight(name: str, noise: torch.Tensor) -> torch.Tensor | None:
    """Norms that count from 0, decays that forget some tokens soon and others hardly; None: as in the other families."""
    if name.endswith("linear_attn.norm.weight"):
        return None
    if name.endswith("norm.weight"):
        return 0.2 * noise
    if name.endswith(".A_log"):
        return noise - 1
    return None
