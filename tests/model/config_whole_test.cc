// Whole checkpoints' config.json as they are released: the text part is read, what it does not compute refused by name.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "core/base/status.h"
#include "core/model/family.h"
#include "nlohmann/json.hpp"
#include "tests/model/config_reading.h"

namespace moed {
namespace whole_configs {
namespace {

using Json = nlohmann::json;

void ExpectRefusal(const Json& config, std::string_view named) {
  const absl::Status status = Read(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(ToAbsl(named)), absl::string_view::npos) << status << "\nshould name " << named;
}

// ERNIE-4.5-VL-28B-A3B-Base-PT.
Json ErnieVl() {
  return Json::parse(R"({"architectures": ["Ernie4_5_VLMoeForConditionalGeneration"], "auto_map": {"AutoConfig":
    "configuration_ernie4_5_vl.Ernie4_5_VLMoEConfig"}, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 2560, "im_patch_id": 100295, "image_end_token_id": 101305, "image_start_token_id": 101304,
    "intermediate_size": 12288, "max_position_embeddings": 131072, "model_type": "ernie4_5_moe_vl", "moe_capacity": [128, 128,
    128], "moe_gate": "topk", "moe_intermediate_size": [1536, 512], "moe_k": 6, "moe_layer_end_index": [29, 28],
    "moe_layer_interval": 1, "moe_layer_start_index": [1, 1], "moe_multimodal_dispatch_use_allgather":
    "v2-alltoall-unpad-text", "moe_num_experts": [64, 64], "moe_num_shared_experts": 2, "moe_use_aux_free": true,
    "num_attention_heads": 20, "num_hidden_layers": 28, "num_key_value_heads": 4, "pad_token_id": 0, "pixel_hidden_size": 1280,
    "rms_norm_eps": 1e-05, "rope_3d": true, "rope_scaling": {"mrope_section": [22, 22, 20], "type": "default"},
    "rope_theta": 500000, "spatial_conv_size": 2, "temporal_conv_size": 2, "tie_word_embeddings": true, "torch_dtype":
    "bfloat16", "use_bias": false, "use_cache": true, "use_rmsnorm": true, "video_end_token_id": 101307,
    "video_start_token_id": 101306, "vision_config": {"depth": 32, "hidden_size": 1280}, "vocab_size": 103424})");
}

TEST(WholeConfigTest, ErnieVlIsRead) {
  Json config = ErnieVl();
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->experts, 64);
  EXPECT_EQ(spec->expert_ffn, 1536);
  EXPECT_EQ(spec->shared_ffn, 2 * 1536);
  EXPECT_EQ(spec->dense_ffn, 12288);
  EXPECT_TRUE(!spec->moe[0] && spec->moe[1] && spec->moe[27]);
  EXPECT_TRUE(spec->router_correction && spec->norm_topk_prob && spec->rope_interleaved && spec->tied_embeddings);
  config["moe_layer_start_index"] = {1, 2};
  ExpectRefusal(config, "moe_layer_start_index");
  for (const auto& [key, value] : {std::pair<std::string, Json>{"moe_num_experts", {64, 32}},
                                   {"moe_intermediate_size", {1, 2, 3}},
                                   {"rope_3d", false},
                                   {"use_bias", true},
                                   {"moe_gate", "top2"}}) {
    config = ErnieVl();
    config[key] = value;
    ExpectRefusal(config, key);
  }
  config = ErnieVl();
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 65536}};
  ExpectRefusal(config, "yarn");
  // The 424B one has one number for both kinds, and no shared experts.
  config = ErnieVl();
  config.erase("moe_num_shared_experts");
  config.update({{"moe_layer_start_index", 3}, {"moe_layer_end_index", 27}});
  EXPECT_TRUE(Read(config)->shared_ffn == 0 && !Read(config)->moe[2] && Read(config)->moe[3]);
}

// Qwen3-VL-30B-A3B-Instruct.
Json Qwen3Vl() {
  return Json::parse(R"({"architectures": ["Qwen3VLMoeForConditionalGeneration"], "image_token_id": 151655,
    "model_type": "qwen3_vl_moe", "text_config": {"attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
    "decoder_sparse_step": 1, "dtype": "bfloat16", "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 262144,
    "mlp_only_layers": [], "model_type": "qwen3_vl_moe_text", "moe_intermediate_size": 768, "norm_topk_prob": true,
    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06, "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"},
    "rope_theta": 5000000, "use_cache": true, "vocab_size": 151936}, "tie_word_embeddings": false,
    "transformers_version": "4.57.0.dev0", "video_token_id": 151656, "vision_config": {"deepstack_visual_indexes": [8, 16, 24],
    "depth": 27, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152, "model_type": "qwen3_vl_moe"},
    "vision_end_token_id": 151653, "vision_start_token_id": 151652})");
}

TEST(WholeConfigTest, Qwen3VlIsRead) {
  Json config = Qwen3Vl();
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "qwen3_vl_moe_text");
  EXPECT_EQ(spec->experts, 128);
  EXPECT_EQ(spec->rope_theta, 5e6);
  EXPECT_TRUE(spec->norm_topk_prob && !spec->qkv_bias && !spec->tied_embeddings);
  config["text_config"]["rope_scaling"].update(
      {{"rope_type", "yarn"}, {"factor", 3.0}, {"original_max_position_embeddings", 262144}});
  EXPECT_EQ(Read(config)->yarn->factor, 3) << "as the model card says it for long contexts";
  config = Qwen3Vl();
  config["text_config"]["attention_bias"] = true;
  EXPECT_TRUE(Read(config)->qkv_bias && Read(config)->o_bias);
  config["tie_word_embeddings"] = true;
  EXPECT_TRUE(Read(config)->tied_embeddings);
  config["text_config"]["norm_topk_prob"] = false;
  ExpectRefusal(config, "norm_topk_prob");
  config = Qwen3Vl();
  config["text_config"]["model_type"] = "qwen3_vl_text";
  ExpectRefusal(config, "qwen3_vl_text");
  config = Qwen3Vl();
  config["deepstack"] = 3;
  ExpectRefusal(config, "deepstack");
}

// Qwen3-Omni-30B-A3B-Instruct, what thinks.
TEST(WholeConfigTest, TheThinkerOfQwen3OmniIsRead) {
  Json text = Qwen3Vl()["text_config"];
  text.update(Json::parse(R"({"_name_or_path": "", "add_cross_attention": false, "architectures": null, "bad_words_ids": null,
    "begin_suppress_tokens": null, "bos_token_id": null, "chunk_size_feed_forward": 0, "cross_attention_hidden_size": null,
    "decoder_start_token_id": null, "diversity_penalty": 0.0, "do_sample": false, "dtype": null, "early_stopping": false,
    "encoder_no_repeat_ngram_size": 0, "eos_token_id": null, "exponential_decay_length_penalty": null, "finetuning_task": null,
    "forced_bos_token_id": null, "forced_eos_token_id": null, "intermediate_size": 768, "length_penalty": 1.0, "max_length": 20,
    "max_position_embeddings": 65536, "min_length": 0, "model_type": "qwen3_omni_moe_text", "no_repeat_ngram_size": 0,
    "num_beam_groups": 1, "num_beams": 1, "num_return_sequences": 1, "output_router_logits": false, "output_scores": false,
    "pad_token_id": null, "pruned_heads": {}, "remove_invalid_values": false, "repetition_penalty": 1.0, "return_dict": true,
    "return_dict_in_generate": false, "rope_theta": 1000000, "router_aux_loss_coef": 0.001, "sep_token_id": null,
    "shared_expert_intermediate_size": 0, "sliding_window": null, "suppress_tokens": null, "temperature": 1.0,
    "tie_encoder_decoder": false, "tie_word_embeddings": false, "top_k": 50, "top_p": 1.0, "torchscript": false,
    "typical_p": 1.0, "use_bfloat16": false, "use_qk_norm": true, "use_sliding_window": false, "vocab_size": 152064})"));
  text["rope_scaling"].update({{"interleaved", true}, {"type", "default"}});
  Json config = {{"architectures", {"Qwen3OmniMoeForConditionalGeneration"}},
                 {"assistant_token_id", 77091},
                 {"code2wav_config", {{"hidden_size", 1024}}},
                 {"enable_audio_output", true},
                 {"im_end_token_id", 151645},
                 {"im_start_token_id", 151644},
                 {"model_type", "qwen3_omni_moe"},
                 {"system_token_id", 8948},
                 {"talker_config", {{"accept_hidden_layer", 24}}},
                 {"thinker_config",
                  {{"audio_config", {{"d_model", 1280}}},
                   {"audio_end_token_id", 151670},
                   {"audio_start_token_id", 151669},
                   {"audio_token_id", 151675},
                   {"dtype", "bfloat16"},
                   {"image_token_id", 151655},
                   {"initializer_range", 0.02},
                   {"model_type", "qwen3_omni_moe_thinker"},
                   {"position_id_per_seconds", 13},
                   {"seconds_per_chunk", 2},
                   {"text_config", text},
                   {"user_token_id", 872},
                   {"video_token_id", 151656},
                   {"vision_config", {{"depth", 27}}},
                   {"vision_end_token_id", 151653},
                   {"vision_start_token_id", 151652}}},
                 {"tts_bos_token_id", 151672},
                 {"tts_eos_token_id", 151673},
                 {"tts_pad_token_id", 151671}};
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "qwen3_omni_moe_text");
  EXPECT_TRUE(spec->norm_topk_prob);
  Json& own = config["thinker_config"]["text_config"];
  own["norm_topk_prob"] = false;
  EXPECT_FALSE(Read(config)->norm_topk_prob);
  own["shared_expert_intermediate_size"] = 768;
  ExpectRefusal(config, "shared_expert_intermediate_size");
}

// GLM-4.5V.
Json Glm4v() {
  return Json::parse(R"({"architectures": ["Glm4vMoeForConditionalGeneration"], "model_type": "glm4v_moe",
    "text_config": {"pad_token_id": 151329, "vocab_size": 151552, "eos_token_id": [151329, 151336, 151338],
    "image_end_token_id": 151340, "image_start_token_id": 151339, "image_token_id": 151363, "head_dim": 128,
    "attention_bias": true, "attention_dropout": 0.0, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 10944, "max_position_embeddings": 65536, "model_type": "glm4v_moe_text",
    "moe_intermediate_size": 1408, "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true,
    "num_attention_heads": 96, "num_experts_per_tok": 8, "num_hidden_layers": 46, "num_key_value_heads": 8,
    "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "dtype": "bfloat16", "rope_scaling": {"rope_type": "default",
    "mrope_section": [8, 12, 12]}, "rope_theta": 10000.0, "routed_scaling_factor": 1.0, "topk_group": 1, "use_cache": true,
    "use_qk_norm": false}, "tie_word_embeddings": false, "transformers_version": "4.56.0.dev0", "image_end_token_id": 151340,
    "image_start_token_id": 151339, "image_token_id": 151363, "video_end_token_id": 151342, "video_start_token_id": 151341,
    "video_token_id": 151364, "vision_config": {"depth": 24, "hidden_size": 1536, "model_type": "glm4v_moe_vision"}})");
}

TEST(WholeConfigTest, Glm45VIsRead) {
  Json config = Glm4v();
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "glm4v_moe_text");
  EXPECT_EQ(spec->rotary_dims, 64);
  EXPECT_EQ(spec->moe[0], false);
  EXPECT_EQ(spec->dense_ffn, 10944);
  EXPECT_TRUE(spec->qkv_bias && !spec->o_bias && spec->router_correction);
  EXPECT_EQ(spec->eos.size(), 3u);
  Json& text = config["text_config"];
  for (const char* key : {"rope_theta", "rope_scaling", "partial_rotary_factor"}) text.erase(key);
  text["rope_parameters"] = {
      {"mrope_section", {8, 12, 12}}, {"partial_rotary_factor", 0.5}, {"rope_theta", 10000.0}, {"rope_type", "default"}};
  EXPECT_EQ(SpecToJson(*Read(config)), SpecToJson(*spec)) << "as GLM-4.6V spells it";
  text["use_qk_norm"] = true;
  ExpectRefusal(config, "use_qk_norm");
}

// Kimi-K2.5: its text part comes from an older transformers, which wrote how it would sample.
TEST(WholeConfigTest, TheTextPartOfKimiK25IsRead) {
  Json config = Json::parse(R"({"architectures": ["KimiK25ForConditionalGeneration"], "auto_map": {"AutoConfig":
    "configuration_kimi_k25.KimiK25Config"}, "bos_token_id": 163584, "dtype": "bfloat16", "eos_token_id": 163585,
    "ignore_index": -100, "media_placeholder_token_id": 163605, "model_type": "kimi_k25", "pad_token_id": 163839,
    "text_config": {"_name_or_path": "", "add_cross_attention": false, "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": false, "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "aux_loss_alpha": 0.001, "bad_words_ids": null, "begin_suppress_tokens": null, "bos_token_id": 163584,
    "chunk_size_feed_forward": 0, "cross_attention_hidden_size": null, "decoder_start_token_id": null, "diversity_penalty": 0.0,
    "do_sample": false, "dtype": "bfloat16", "early_stopping": false, "encoder_no_repeat_ngram_size": 0, "eos_token_id": 163585,
    "ep_size": 1, "exponential_decay_length_penalty": null, "finetuning_task": null, "first_k_dense_replace": 1,
    "forced_bos_token_id": null, "forced_eos_token_id": null, "hidden_act": "silu", "hidden_size": 7168,
    "id2label": {"0": "LABEL_0"}, "initializer_range": 0.02, "intermediate_size": 18432, "is_decoder": false,
    "is_encoder_decoder": false, "kv_lora_rank": 512, "label2id": {"LABEL_0": 0}, "length_penalty": 1.0, "max_length": 20,
    "max_position_embeddings": 262144, "min_length": 0, "model_type": "kimi_k2", "moe_intermediate_size": 2048,
    "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 384, "n_shared_experts": 1, "no_repeat_ngram_size": 0,
    "norm_topk_prob": true, "num_attention_heads": 64, "num_beam_groups": 1, "num_beams": 1, "num_experts_per_tok": 8,
    "num_hidden_layers": 61, "num_key_value_heads": 64, "num_nextn_predict_layers": 0, "num_return_sequences": 1,
    "output_attentions": false, "output_hidden_states": false, "output_scores": false, "pad_token_id": 163839, "prefix": null,
    "pretraining_tp": 1, "problem_type": null, "pruned_heads": {}, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "remove_invalid_values": false, "repetition_penalty": 1.0, "return_dict": true,
    "return_dict_in_generate": false, "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0,
    "factor": 64.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"},
    "rope_theta": 50000.0, "routed_scaling_factor": 2.827, "scoring_func": "sigmoid", "sep_token_id": null, "seq_aux": true,
    "suppress_tokens": null, "task_specific_params": null, "temperature": 1.0, "tf_legacy_loss": false,
    "tie_encoder_decoder": false, "tie_word_embeddings": false, "tokenizer_class": null, "top_k": 50, "top_p": 1.0,
    "topk_group": 1, "topk_method": "noaux_tc", "torchscript": false, "transformers_version": "4.56.2", "typical_p": 1.0,
    "use_bfloat16": false, "use_cache": true, "v_head_dim": 128, "vocab_size": 163840}, "tie_word_embeddings": false,
    "use_unified_vision_chunk": true, "video_placeholder": "<|kimi_k25_video_placeholder|>",
    "vision_config": {"init_pos_emb_height": 64}})");
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "kimi_k2");
  EXPECT_EQ(spec->experts, 384);
  EXPECT_EQ(spec->latent->q_rank, 1536);
  config["text_config"]["model_type"] = "deepseek_v3";
  EXPECT_EQ(SpecToJson(*Read(config)), SpecToJson(*spec));
  config["text_config"]["model_type"] = "kimi_linear";
  ExpectRefusal(config, "kimi_linear");
  config["text_config"]["model_type"] = "kimi_k2";
  config["tie_word_embeddings"] = true;
  ExpectRefusal(config, "tie_word_embeddings");
}

}  // namespace
}  // namespace whole_configs
}  // namespace moed
