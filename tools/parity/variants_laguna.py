"""Laguna: layers of two kinds, with heads of queries and rotations of their own, and gates of heads or of numbers."""

from typing import Any

from transformers import LagunaConfig, PretrainedConfig

YARN = dict(rope_type="yarn", rope_theta=500000.0, factor=4.0, beta_fast=64.0, beta_slow=1.0, original_max_position_embeddings=40)


def laguna_variants(common: dict[str, Any]) -> dict[str, PretrainedConfig]:
    sizes = dict(
        hidden_size=44,
        head_dim=12,
        intermediate_size=38,
        num_key_value_heads=2,
        moe_intermediate_size=14,
        shared_expert_intermediate_size=18,
        tie_word_embeddings=False,
        **common,
    )
    return {
        "laguna": LagunaConfig(
            num_hidden_layers=4,
            num_attention_heads=4,
            num_attention_heads_per_layer=[4, 6, 6, 6],
            layer_types=["full_attention", *["sliding_attention"] * 3],
            mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
            sliding_window=9,
            num_experts=7,
            num_experts_per_tok=3,
            moe_routed_scaling_factor=2.5,
            gating="per-head",
            rope_parameters=dict(
                full_attention=YARN | dict(partial_rotary_factor=0.5),
                sliding_attention=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0),
            ),
            **sizes,
        ),
        "laguna_elements": LagunaConfig(
            num_hidden_layers=3,
            num_attention_heads=4,
            mlp_layer_types=["dense", "sparse", "sparse"],
            sliding_window=0,
            num_experts=5,
            num_experts_per_tok=2,
            gating="per-element",
            rope_parameters=dict(full_attention=YARN | dict(partial_rotary_factor=1.0)),
            **sizes,
        ),
    }
