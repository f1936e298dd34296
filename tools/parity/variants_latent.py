"""The variants of make_golden.py with multi-head latent attention."""

from typing import Any

from transformers import DeepseekV2Config, DeepseekV3Config, Glm4MoeLiteConfig, PretrainedConfig


def yarn(mscale: float, mscale_all_dim: float) -> dict[str, Any]:
    """Shorter than the text; the rotated part alone is multiplied where the two differ."""
    return dict(
        rope_type="yarn",
        rope_theta=1e4,
        factor=4.0,
        beta_fast=4.0,
        beta_slow=0.25,
        mscale=mscale,
        mscale_all_dim=mscale_all_dim,
        original_max_position_embeddings=40,
    )


def latent_variants(common: dict[str, Any]) -> dict[str, PretrainedConfig]:
    return {
        # As V2-Lite: queries are not compressed.
        "deepseek_v2": DeepseekV2Config(
            hidden_size=35,
            num_hidden_layers=3,
            num_attention_heads=5,
            intermediate_size=22,
            moe_intermediate_size=10,
            n_routed_experts=7,
            n_shared_experts=2,
            num_experts_per_tok=3,
            first_k_dense_replace=1,
            q_lora_rank=None,
            kv_lora_rank=24,
            qk_nope_head_dim=10,
            qk_rope_head_dim=6,
            v_head_dim=8,
            rope_parameters=yarn(0.707, 0.707),
            **common,
        ),
        "deepseek_v2_groups": DeepseekV2Config(
            hidden_size=33,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=22,
            moe_intermediate_size=12,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=3,
            topk_method="group_limited_greedy",
            n_group=4,
            topk_group=2,
            routed_scaling_factor=2.5,
            q_lora_rank=20,
            kv_lora_rank=32,
            qk_nope_head_dim=12,
            qk_rope_head_dim=10,
            v_head_dim=16,
            rope_parameters=yarn(1.0, 0.5),
            **common,
        ),
        # The norms within attention have an epsilon of their own.
        "deepseek_v3": DeepseekV3Config(
            hidden_size=36,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=3,
            intermediate_size=26,
            moe_intermediate_size=10,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=3,
            n_group=4,
            topk_group=2,
            routed_scaling_factor=1.75,
            first_k_dense_replace=1,
            num_mtp_layers=0,
            q_lora_rank=22,
            kv_lora_rank=40,
            qk_nope_head_dim=14,
            qk_rope_head_dim=8,
            v_head_dim=8,
            rms_norm_eps=1e-3,
            rope_parameters=yarn(1.0, 1.0),
            **common,
        ),
        # More heads than rows of a kernel's half, a hidden size that they do not divide, values wider than keys.
        "glm4_moe_lite": Glm4MoeLiteConfig(
            hidden_size=34,
            num_hidden_layers=2,
            num_attention_heads=9,
            num_key_value_heads=9,
            intermediate_size=22,
            moe_intermediate_size=12,
            n_routed_experts=6,
            n_shared_experts=1,
            num_experts_per_tok=2,
            q_lora_rank=18,
            kv_lora_rank=16,
            qk_nope_head_dim=6,
            qk_rope_head_dim=4,
            v_head_dim=16,
            rope_parameters=dict(rope_type="default", rope_theta=1e6),
            **common,
        ),
    }
