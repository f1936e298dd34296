"""Gemma 4's variant of make_golden.py and its weights."""

from typing import Any

import torch
from transformers import Gemma4TextConfig, PretrainedConfig


def gemma4_variants(common: dict[str, Any]) -> dict[str, PretrainedConfig]:
    return {
        # Kinds of layers with heads of their own, one that makes keys and values by one projection; a few pairs of its heads
        # turn. A dense block beside the experts; text longer than the window; logits far into their cap.
        "gemma4_text": Gemma4TextConfig(
            hidden_size=34,
            num_hidden_layers=4,
            num_attention_heads=6,
            num_key_value_heads=3,
            num_global_key_value_heads=2,
            head_dim=8,
            global_head_dim=14,
            attention_k_eq_v=True,
            intermediate_size=22,
            moe_intermediate_size=10,
            enable_moe_block=True,
            num_experts=5,
            top_k_experts=2,
            sliding_window=9,
            layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            rope_parameters=dict(
                full_attention=dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.4),
                sliding_attention=dict(rope_type="default", rope_theta=1e4),
            ),
            final_logit_softcapping=3.0,
            hidden_size_per_layer_input=0,
            **common,
        )
    }


def gemma4_weight(name: str, noise: torch.Tensor) -> torch.Tensor | None:
    """Embeddings that the layers change, a router as decisive as elsewhere; None: as in the other families."""
    if name.endswith("router.scale"):
        return noise.shape[0] ** 0.5 * (1 + 0.2 * noise)
    if name.endswith("router.proj.weight"):
        return 3 * noise * noise.shape[1] ** -0.5
    if name.endswith(("q_norm.weight", "k_norm.weight")):  # in place of a scale of the scores
        return noise.shape[0] ** -0.25 * (1 + 0.2 * noise)
    if noise.dim() == 1:  # norms, factors of layers and experts; what attention adds has one behind it
        return (0.25 if name.endswith("post_attention_layernorm.weight") else 1) * (1 + 0.2 * noise)
    if "embed_tokens" in name:
        return 0.2 * noise
    return None
