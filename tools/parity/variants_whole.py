"""The variants of make_golden.py that are whole checkpoints: the text part and one that sees."""

from typing import Any

from transformers import Ernie4_5_VLMoeConfig, Glm4vMoeConfig, PretrainedConfig, Qwen3VLMoeConfig


def whole_variants(common: dict[str, Any]) -> dict[str, PretrainedConfig]:
    sight: dict[str, Any] = dict(depth=1, hidden_size=8, intermediate_size=6, num_heads=2, patch_size=2)
    return {
        # The experts of a layer in one tensor, outputs before inputs, as transformers 5 saves them; a dense layer; biases.
        "qwen3_vl_moe": Qwen3VLMoeConfig(
            text_config=dict(
                hidden_size=34,
                num_hidden_layers=3,
                num_attention_heads=6,
                num_key_value_heads=2,
                head_dim=10,
                intermediate_size=22,
                moe_intermediate_size=12,
                num_experts=6,
                num_experts_per_tok=2,
                mlp_only_layers=[1],
                attention_bias=True,
                norm_topk_prob=True,
                tie_word_embeddings=False,
                rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[2, 2, 1], mrope_interleaved=True),
                **common,
            ),
            vision_config=dict(out_hidden_size=34, num_position_embeddings=4, deepstack_visual_indexes=[0], **sight),
            image_token_id=257,
            video_token_id=258,
            vision_start_token_id=259,
            vision_end_token_id=260,
        ),
        # Small, the experts as released (see as_released_sight), and every layer has some: others have no names in GGUF files.
        "qwen3_vl_moe_experts": Qwen3VLMoeConfig(
            text_config=dict(
                hidden_size=26,
                num_hidden_layers=2,
                num_attention_heads=3,
                num_key_value_heads=1,
                head_dim=10,
                intermediate_size=22,
                moe_intermediate_size=10,
                num_experts=5,
                num_experts_per_tok=2,
                norm_topk_prob=True,
                tie_word_embeddings=False,
                rope_parameters=dict(rope_type="default", rope_theta=1e6, mrope_section=[2, 2, 1], mrope_interleaved=True),
                **common,
            ),
            vision_config=dict(out_hidden_size=26, num_position_embeddings=4, deepstack_visual_indexes=[0], **sight),
            image_token_id=257,
            video_token_id=258,
            vision_start_token_id=259,
            vision_end_token_id=260,
        ),
        # A dense layer, biases of queries, keys and values, half of each head turns and has no norm.
        "glm4v_moe": Glm4vMoeConfig(
            text_config=dict(
                hidden_size=36,
                num_hidden_layers=2,
                num_attention_heads=6,
                num_key_value_heads=2,
                head_dim=12,
                intermediate_size=22,
                moe_intermediate_size=10,
                n_routed_experts=6,
                num_experts_per_tok=2,
                n_shared_experts=1,
                first_k_dense_replace=1,
                routed_scaling_factor=1.3,
                attention_bias=True,
                tie_word_embeddings=False,
                rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[1, 1, 1]),
                **common,
            ),
            vision_config=dict(out_hidden_size=36, image_size=4, **sight),
            image_token_id=257,
            video_token_id=258,
            image_start_token_id=259,
            image_end_token_id=260,
            video_start_token_id=259,
            video_end_token_id=260,
        ),
        # A dense layer, experts of pictures behind those of texts and narrower, shared experts.
        "ernie4_5_vl_moe": Ernie4_5_VLMoeConfig(
            text_config=dict(
                hidden_size=36,
                num_hidden_layers=3,
                num_attention_heads=3,
                num_key_value_heads=1,
                intermediate_size=22,
                moe_intermediate_size=[10, 6],
                moe_num_experts=6,
                moe_k=2,
                moe_num_shared_experts=2,
                tie_word_embeddings=False,
                rope_parameters=dict(rope_type="default", rope_theta=5e5, mrope_section=[2, 2, 2]),
                **common,
            ),
            vision_config=sight,
            image_start_token_id=257,
            image_end_token_id=258,
            image_token_id=259,
            video_start_token_id=257,
            video_end_token_id=258,
            video_token_id=260,
            tie_word_embeddings=False,
        ),
    }
