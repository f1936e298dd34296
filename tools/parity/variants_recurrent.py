"""The variants of make_golden.py most of whose layers have a state in place of keys and values: Gated DeltaNets, Mamba-2, gated
short convolutions.
"""

from typing import Any

import torch
from transformers import (
    GraniteMoeHybridConfig,
    Lfm2MoeConfig,
    NemotronHConfig,
    PretrainedConfig,
    Qwen3_5MoeTextConfig,
    Qwen3NextConfig,
)


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
        # As above, small, and every layer has experts: others have no names in GGUF files.
        "qwen3_next_experts": Qwen3NextConfig(
            layer_types=["linear_attention", "full_attention"],
            linear_num_value_heads=4,
            linear_key_head_dim=5,
            linear_value_head_dim=6,
            linear_conv_kernel_dim=4,
            **{**shape, "hidden_size": 26, "num_hidden_layers": 2, "num_attention_heads": 4},
        ),
        # All experts of a layer in one tensor, as they are released; a key head for each value head.
        "qwen3_5_moe_text": Qwen3_5MoeTextConfig(
            linear_num_value_heads=2, linear_key_head_dim=9, linear_value_head_dim=17, linear_conv_kernel_dim=3, **shape
        ),
        # As above, small, and three value heads share a key head: GGUF files have them in another order.
        "qwen3_5_moe_heads": Qwen3_5MoeTextConfig(
            layer_types=["linear_attention", "full_attention"],
            linear_num_value_heads=6,
            linear_key_head_dim=5,
            linear_value_head_dim=6,
            linear_conv_kernel_dim=4,
            **{**shape, "hidden_size": 26, "num_hidden_layers": 2, "num_attention_heads": 4},
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


def recurrent_variants(common: dict[str, Any]) -> dict[str, PretrainedConfig]:
    granite: dict[str, Any] = dict(
        num_hidden_layers=4,
        num_attention_heads=5,
        num_key_value_heads=1,
        num_local_experts=5,
        num_experts_per_tok=2,
        embedding_multiplier=1.5,
        attention_multiplier=0.11,
        residual_multiplier=0.7,
        logits_scaling=6.0,
        tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1e4),
        **common,
    )
    return delta_net_variants(common) | {
        # The dense layers are a convolution and attention.
        "lfm2_moe": Lfm2MoeConfig(
            hidden_size=36,
            num_hidden_layers=5,
            num_attention_heads=6,
            num_key_value_heads=2,
            intermediate_size=26,
            moe_intermediate_size=10,
            num_experts=6,
            num_experts_per_tok=2,
            num_dense_layers=2,
            conv_L_cache=3,
            norm_eps=1e-5,
            routed_scaling_factor=1.3,
            layer_types=["conv", "full_attention", "conv", "full_attention", "conv"],
            rope_parameters=dict(rope_type="default", rope_theta=1e6),
            **common,
        ),
        # Two groups with norms of their own; nothing says where a token stands but the states.
        "granitemoehybrid": GraniteMoeHybridConfig(
            hidden_size=30,
            intermediate_size=10,
            shared_intermediate_size=14,
            position_embedding_type="nope",
            layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
            mamba_n_heads=6,
            mamba_d_head=10,
            mamba_n_groups=2,
            mamba_d_state=11,
            mamba_d_conv=4,
            mamba_expand=2,
            **granite,
        ),
        "granitemoehybrid_rope": GraniteMoeHybridConfig(
            hidden_size=30,
            intermediate_size=10,
            shared_intermediate_size=12,
            position_embedding_type="rope",
            layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"],
            mamba_n_heads=4,
            mamba_d_head=15,
            mamba_n_groups=1,
            mamba_d_state=16,
            mamba_d_conv=3,
            mamba_expand=2,
            mamba_conv_bias=False,
            **(granite | dict(num_key_value_heads=5)),
        ),
        # Two groups of experts, of which one is kept; one with experts follows another.
        "nemotron_h": NemotronHConfig(
            hidden_size=20,
            layers_block_type=["linear_attention", "moe", "moe", "full_attention", "linear_attention"],
            num_attention_heads=5,
            num_key_value_heads=1,
            head_dim=6,
            ssm_state_size=5,
            mamba_num_heads=4,
            mamba_head_dim=7,
            n_groups=2,
            conv_kernel=3,
            n_routed_experts=6,
            num_experts_per_tok=2,
            moe_intermediate_size=9,
            moe_shared_expert_intermediate_size=14,
            n_group=2,
            topk_group=1,
            routed_scaling_factor=1.3,
            **common,
        ),
    }


def recurrent_weight(name: str, noise: torch.Tensor) -> torch.Tensor | None:
    """Decays that forget some tokens soon and others hardly, embeddings that are no answers by themselves where the head has them
    too; None: as in the other families.
    """
    if name.endswith(".A_log"):
        return noise - 1
    if name.endswith(("embed_tokens.weight", "embeddings.weight")):
        return 0.1 * noise
    return None
