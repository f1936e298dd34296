"""Variants of make_golden.py: FlexOlmo, Granite with a shared expert, Llama 4, Mistral 4, Command A+."""

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Cohere2MoeConfig,
    FlexOlmoConfig,
    GraniteMoeSharedConfig,
    Llama4TextConfig,
    Mistral4Config,
    Mistral4ForCausalLM,
    PretrainedConfig,
)

AutoModelForCausalLM.register(Mistral4Config, Mistral4ForCausalLM, exist_ok=True)


def later_variants(common: dict[str, Any]) -> dict[str, PretrainedConfig]:
    return {
        # Norms behind the blocks alone.
        "flex_olmo": FlexOlmoConfig(
            hidden_size=42,
            num_hidden_layers=3,
            num_attention_heads=7,
            num_key_value_heads=1,
            intermediate_size=22,
            num_experts=5,
            num_experts_per_tok=2,
            pad_token_id=0,
            rope_parameters=dict(rope_type="default", rope_theta=5e5),
            **common,
        ),
        "granitemoeshared": GraniteMoeSharedConfig(
            hidden_size=36,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=2,
            intermediate_size=14,
            shared_intermediate_size=22,
            num_local_experts=6,
            num_experts_per_tok=2,
            embedding_multiplier=1.5,
            attention_multiplier=0.3,
            residual_multiplier=0.5,
            logits_scaling=4.0,
            rope_parameters=dict(rope_type="default", rope_theta=1e4),
            **common,
        ),
        # Text longer than a chunk and than where queries begin to grow; dense layers between those with experts. The frequencies
        # are divided as Scout's are: either not at all or by the whole factor.
        "llama4_text": Llama4TextConfig(
            hidden_size=38,
            num_hidden_layers=4,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=10,
            intermediate_size=18,
            intermediate_size_mlp=26,
            num_local_experts=6,
            num_experts_per_tok=1,
            interleave_moe_layer_step=2,
            no_rope_layer_interval=3,
            attention_chunk_size=11,
            floor_scale=16,
            attn_scale=0.4,
            rope_parameters=dict(
                rope_type="llama3",
                rope_theta=5e5,
                factor=16.0,
                low_freq_factor=1.0,
                high_freq_factor=1.0,
                original_max_position_embeddings=70,
            ),
            **common,
        ),
        "mistral4": Mistral4Config(
            hidden_size=36,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=3,
            intermediate_size=26,
            moe_intermediate_size=10,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=3,
            first_k_dense_replace=1,
            q_lora_rank=22,
            kv_lora_rank=40,
            qk_nope_head_dim=12,
            qk_rope_head_dim=4,
            v_head_dim=8,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1e4,
                factor=4.0,
                beta_fast=4.0,
                beta_slow=0.25,
                mscale=1.0,
                mscale_all_dim=1.0,
                original_max_position_embeddings=20,
                llama_4_scaling_beta=0.3,
            ),
            **common,
        ),
        # A dense layer in front, which sees all and rotates; behind it one that sees all and does not. Averages with the shared
        # experts.
        "cohere2_moe": Cohere2MoeConfig(
            hidden_size=38,
            num_hidden_layers=4,
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=10,
            intermediate_size=12,
            prefix_dense_intermediate_size=26,
            num_experts=7,
            num_experts_per_tok=2,
            num_shared_experts=2,
            expert_selection_fn="sigmoid",
            first_k_dense_replace=1,
            layer_types=["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
            sliding_window=9,
            logit_scale=0.5,
            rope_theta=1e4,
            **common,
        ),
    }


def llama4_weight(_name: str, noise: torch.Tensor) -> torch.Tensor | None:
    """The experts' matrices are transposed."""
    return noise * noise.shape[1] ** -0.5 if noise.dim() == 3 else None


def flex_olmo_weight(name: str, noise: torch.Tensor) -> torch.Tensor | None:
    """Its router reads what no norm has made small; a norm makes what attention adds large."""
    if name.endswith("post_attention_layernorm.weight"):
        return 0.25 * (1 + 0.2 * noise)
    return 0.4 * noise * noise.shape[1] ** -0.5 if name.endswith(".gate.weight") else None
