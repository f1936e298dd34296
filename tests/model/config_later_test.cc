// config.json of Llama 4, Mistral 4, North Mini, Command A+, FlexOlmo and Granite with a shared expert, as released.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/model/family.h"
#include "core/model/spec_check.h"
#include "nlohmann/json.hpp"
#include "tests/model/config_reading.h"

namespace moed {
namespace later_families {

using Json = nlohmann::json;

void ExpectRefusal(const Json& config, const std::string& named) {
  const absl::Status status = Read(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << named;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(named));
}

// And travels.
ModelSpec Good(const Json& config) {
  const auto spec = Read(config);
  EXPECT_TRUE(spec.ok()) << spec.status();
  if (!spec.ok()) return {};
  const std::string json = SpecToJson(*spec);
  const auto again = SpecFromJson(json);
  EXPECT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(SpecToJson(*again), json);
  return *spec;
}

Json Scout() {
  return Json::parse(R"({
    "architectures": ["Llama4ForConditionalGeneration"], "boi_token_index": 200080, "eoi_token_index": 200081,
    "image_token_index": 200092, "model_type": "llama4", "torch_dtype": "bfloat16", "transformers_version": "4.51.0.dev0",
    "vision_config": {"hidden_size": 1408, "model_type": "llama4_vision_model"},
    "text_config": {
      "_attn_implementation_autoset": true, "attention_bias": false, "attention_chunk_size": 8192, "attention_dropout": 0.0,
      "bos_token_id": 200000, "eos_token_id": [200001, 200007, 200008], "for_llm_compressor": false, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "interleave_moe_layer_step": 1,
      "intermediate_size": 8192, "intermediate_size_mlp": 16384, "max_position_embeddings": 10485760,
      "model_type": "llama4_text", "no_rope_layers": [], "num_attention_heads": 40, "num_experts_per_tok": 1,
      "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 16, "output_router_logits": false,
      "pad_token_id": 200018, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
                       "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "torch_dtype": "bfloat16",
      "use_cache": true, "use_qk_norm": true, "vocab_size": 202048}})");
}

TEST(Llama4Test, ScoutIsRead) {
  const ModelSpec spec = Good(Scout());
  EXPECT_EQ(spec.family, "llama4_text");
  EXPECT_EQ(spec.shared_ffn, 8192);
  EXPECT_EQ(spec.dense_ffn, 0);
  EXPECT_EQ(spec.qk_norm, ModelSpec::QkNorm::kUnit);
  EXPECT_TRUE(spec.weighs_inputs && spec.windows_are_chunks && spec.rope_interleaved);
  EXPECT_EQ(spec.router_scoring, RouterScoring::kSigmoidOfChosen);
  ASSERT_EQ(spec.windows.size(), 48u);
  for (int layer = 0; layer < 48; ++layer) {
    EXPECT_EQ(spec.Rotates(LayerId(layer)), layer % 4 != 3);
    EXPECT_EQ(spec.WindowOf(LayerId(layer)), layer % 4 != 3 ? 8192 : 0);
  }
  EXPECT_EQ(spec.temperature, (QueryTemperature{.scale = 0.1, .positions = 8192, .shift = 1, .of_unrotated = true}));
  EXPECT_EQ(spec.temperature->FactorOf(8190), 1);
  EXPECT_DOUBLE_EQ(spec.temperature->FactorOf(8191), 1 + 0.1 * std::log(2.0));
  ASSERT_TRUE(spec.divided);
  EXPECT_EQ(spec.divided->divisors.front(), 1);
  EXPECT_EQ(spec.divided->divisors.back(), 16);
}

TEST(Llama4Test, MaverickHasDenseLayersAndNoNormOfHeads) {
  Json config = Scout()["text_config"];
  config.update(
      {{"interleave_moe_layer_step", 2}, {"num_local_experts", 128}, {"use_qk_norm", false}, {"rope_scaling", nullptr}});
  config["attn_temperature_tuning"] = 4;  // as the first version wrote it
  const ModelSpec spec = Good(config);
  EXPECT_EQ(spec.dense_ffn, 16384);
  EXPECT_EQ(spec.MoeLayers().size(), 24u);
  EXPECT_TRUE(spec.moe[1] && !spec.moe[0]);
  EXPECT_EQ(spec.qk_norm, ModelSpec::QkNorm::kNone);
  EXPECT_TRUE(spec.temperature);
  config["attn_temperature_tuning"] = false;
  EXPECT_FALSE(Good(config).temperature);
}

TEST(Llama4Test, LayersFollowTheirLists) {
  Json config = Scout()["text_config"];
  config["num_hidden_layers"] = 3;
  config["no_rope_layers"] = {0, 1, 1};
  config["moe_layers"] = {2};
  ModelSpec spec = Good(config);
  EXPECT_EQ(spec.windows, (std::vector<int>{0, 8192, 8192}));
  EXPECT_EQ(spec.unrotated_layers, (std::vector<bool>{true, false, false}));
  EXPECT_EQ(spec.moe, (std::vector<bool>{false, false, true}));
  config["layer_types"] = {"chunked_attention", "full_attention", "full_attention"};
  EXPECT_EQ(Good(config).windows, (std::vector<int>{8192, 0, 0}));
  config["attention_chunk_size"] = nullptr;
  ExpectRefusal(config, "attention_chunk_size");
  config.erase("layer_types");
  EXPECT_TRUE(Good(config).windows.empty());
  config["no_rope_layers"] = {0, 0, 0};
  spec = Good(config);
  EXPECT_TRUE(spec.unrotated && spec.temperature);
  EXPECT_EQ(spec.qk_norm, ModelSpec::QkNorm::kNone);
  config["no_rope_layers"] = {1, 1};
  ExpectRefusal(config, "no_rope_layers");
}

TEST(Llama4Test, WhatIsNotComputedIsRefusedByName) {
  const Json good = Scout()["text_config"];
  for (const auto& [key, value] : {std::pair<std::string, Json>{"num_experts_per_tok", 2},
                                   {"attention_bias", true},
                                   {"attention_chunk_size", 0},
                                   {"attn_temperature_tuning", "yes"},
                                   {"use_qk_norm", nullptr},
                                   {"moe_layers", {48}},
                                   {"sliding_window", 4096}}) {
    Json config = good;
    config[key] = value;
    ExpectRefusal(config, key == "num_experts_per_tok" ? "top_k = 2" : key);
  }
  for (const char* const key : {"head_dim", "num_key_value_heads", "num_local_experts"}) {
    Json config = good;
    config.erase(key);
    ExpectRefusal(config, key);
  }
}

Json Mistral4() {
  return Json::parse(R"({
    "architectures": ["Mistral3ForConditionalGeneration"], "dtype": "bfloat16", "image_token_index": 10,
    "model_type": "mistral3", "multimodal_projector_bias": false, "projector_hidden_act": "gelu", "spatial_merge_size": 2,
    "tie_word_embeddings": false, "vision_feature_layer": -1, "vision_config": {"model_type": "pixtral"},
    "text_config": {
      "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "first_k_dense_replace": 0,
      "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
      "kv_lora_rank": 256, "max_position_embeddings": 1048576, "model_type": "mistral4", "moe_intermediate_size": 2048,
      "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 32,
      "num_experts_per_tok": 4, "num_hidden_layers": 36, "num_key_value_heads": 32, "pad_token_id": 11, "pretraining_tp": 1,
      "mlp_bias": false, "sliding_window": null, "tie_word_embeddings": false, "q_lora_rank": 1024, "qk_head_dim": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_interleave": true,
      "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 128.0, "llama_4_scaling_beta": 0.1,
                          "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 8192,
                          "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "yarn", "type": "yarn"},
      "routed_scaling_factor": 1.0, "topk_group": 1, "use_cache": true, "v_head_dim": 128, "vocab_size": 131072}})");
}

TEST(Mistral4Test, IsReadAsReleased) {
  const ModelSpec spec = Good(Mistral4());
  EXPECT_EQ(spec.family, "mistral4");
  EXPECT_EQ(spec.rotary_dims, 64);
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_EQ(spec.router_scoring, RouterScoring::kSoftmax);
  EXPECT_EQ(spec.temperature, (QueryTemperature{.scale = 0.1, .positions = 8192}));
  EXPECT_EQ(spec.yarn->attention_factor, 1);
  EXPECT_FALSE(spec.tied_embeddings);
  EXPECT_EQ(spec.dense_ffn, 0);
}

TEST(Mistral4Test, WhatIsNotComputedIsRefusedByName) {
  const Json good = Mistral4()["text_config"];
  Json config = good;
  config["rope_parameters"].erase("llama_4_scaling_beta");
  ExpectRefusal(config, "llama_4_scaling_beta");
  config = good;
  config["rope_parameters"]["partial_rotary_factor"] = 0.25;
  ExpectRefusal(config, "partial_rotary_factor");
  config = good;
  config["n_group"] = 3;
  ExpectRefusal(config, "router_groups");
  Json dense = Mistral4();
  dense["text_config"]["model_type"] = "ministral3";
  ExpectRefusal(dense, "ministral3");
}

Json NorthMini() {
  Json config = Json::parse(R"({
    "architectures": ["Cohere2MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 5,
    "eos_token_id": 255001, "expert_selection_fn": "sigmoid", "first_k_dense_replace": 1, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 768, "layer_norm_eps": 1e-05, "logit_scale": 1.0,
    "max_position_embeddings": 500000, "model_type": "cohere2_moe", "norm_topk_prob": false, "num_attention_heads": 32,
    "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 49, "num_key_value_heads": 4, "num_shared_experts": 0,
    "pad_token_id": 0, "prefix_dense_intermediate_size": 3072, "prefix_dense_sliding_window_pattern": 1,
    "rms_norm_eps": 1e-06, "rope_theta": 50000, "sliding_window": 4096, "use_cache": true, "use_gated_activation": true,
    "use_parallel_block": true, "use_qk_norm": false, "vocab_size": 262144})");
  for (int layer = 0; layer < 49; ++layer) {
    config["layer_types"].push_back(layer % 4 == 0 ? "full_attention" : "sliding_attention");
  }
  return config;
}

TEST(Cohere2MoeTest, NorthMiniIsRead) {
  Json config = NorthMini();
  const ModelSpec spec = Good(config);
  EXPECT_TRUE(!spec.layer_norm && spec.parallel && spec.tied_embeddings && !spec.norm_topk_prob);
  EXPECT_EQ(spec.dense_ffn, 3072);
  EXPECT_EQ(spec.router_scoring, RouterScoring::kSigmoidOfChosen);
  EXPECT_TRUE(spec.Rotates(LayerId(0)) && spec.Rotates(LayerId(1)) && !spec.Rotates(LayerId(4)));
  EXPECT_EQ(spec.WindowOf(LayerId(1)), 4096);
  config.erase("layer_types");
  EXPECT_EQ(SpecToJson(Good(config)), SpecToJson(spec)) << "every fourth layer behind the dense one sees all";
  config["prefix_dense_sliding_window_pattern"] = 2;
  EXPECT_EQ(Good(config).windows[0], 4096);
  for (const auto& [key, value] : {std::pair<std::string, Json>{"use_parallel_block", false},
                                   {"use_gated_activation", false},
                                   {"use_qk_norm", true},
                                   {"use_embedding_sharing", false},
                                   {"position_embedding_type", "rope"},
                                   {"rotary_pct", 0.5},
                                   {"expert_selection_fn", "greedy"}}) {
    config = NorthMini();
    config[key] = value;
    ExpectRefusal(config, key);
  }
}

// It sees pictures as well.
TEST(Cohere2MoeTest, TheTextPartOfCommandAPlusIsRead) {
  Json config = Json::parse(R"({
    "architectures": ["Cohere2VisionForConditionalGeneration"], "alignment_intermediate_size": 36864, "downsample_factor": 2,
    "dtype": "bfloat16", "image_token_id": 255036, "model_type": "cohere2_vision", "tie_word_embeddings": true,
    "vision_config": {"model_type": "siglip_vision_model"}})");
  Json& text = config["text_config"];
  text = NorthMini();
  text.update(Json::parse(R"({
    "first_k_dense_replace": 0, "hidden_size": 4096, "intermediate_size": 4096, "logit_scale": 0.25,
    "max_position_embeddings": 200000, "norm_topk_prob": true, "num_attention_heads": 128, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "num_shared_experts": 4, "position_embedding_type": "rope_gptj",
    "prefix_dense_intermediate_size": null, "rms_norm_eps": null, "rope_parameters": {"rope_type": "default"},
    "rotary_pct": 1.0, "shared_expert_combination_strategy": "average", "sliding_window_pattern": 4,
    "tie_word_embeddings": true})"));
  text.erase("layer_types");
  const ModelSpec spec = Good(config);
  EXPECT_EQ(spec.family, "cohere2_moe");
  EXPECT_TRUE(spec.layer_norm && spec.tied_embeddings && spec.norm_topk_prob);
  EXPECT_EQ(spec.shared_ffn, 16384);
  EXPECT_TRUE(spec.router_scale == 0.5 && spec.shared_scale == 0.5);
  EXPECT_TRUE(spec.Rotates(LayerId(2)) && !spec.Rotates(LayerId(3)) && spec.WindowOf(LayerId(3)) == 0);
  text["shared_expert_combination_strategy"] = "sum";
  text["expert_selection_fn"] = "softmax";
  const ModelSpec summed = Good(config);
  EXPECT_EQ(summed.router_scale, 1);
  EXPECT_EQ(summed.router_scoring, RouterScoring::kSoftmax);
  config["tie_word_embeddings"] = false;
  ExpectRefusal(config, "tie_word_embeddings");
  config["tie_word_embeddings"] = true;
  text["model_type"] = "cohere2";
  ExpectRefusal(config, "cohere2");
}

// 7x7B-1T: every expert computes.
TEST(FlexOlmoTest, IsReadAsReleased) {
  const ModelSpec spec = Good(Json::parse(R"({
    "architectures": ["FlexOlmoForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 100257,
    "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
    "max_position_embeddings": 4096, "model_type": "flex_olmo", "norm_topk_prob": false, "num_attention_heads": 32,
    "num_experts": 7, "num_experts_per_tok": 7, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "output_router_logits": false, "pad_token_id": 100277, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 500000, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false, "dtype": "float32",
    "transformers_version": "4.53.0", "use_cache": false, "vocab_size": 100352})"));
  EXPECT_EQ(spec.norms, ModelSpec::Norms::kBehind);
  EXPECT_EQ(spec.qk_norm, ModelSpec::QkNorm::kWhole);
}

TEST(GraniteMoeSharedTest, IsReadAsReleased) {
  Json config = Json::parse(R"({
    "architectures": ["GraniteMoeSharedForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attention_multiplier": 0.0078125, "bos_token_id": 0, "embedding_multiplier": 12, "eos_token_id": 0,
    "hidden_act": "silu", "hidden_size": 1536, "init_method": "mup", "initializer_range": 0.02, "intermediate_size": 512,
    "logits_scaling": 6, "max_position_embeddings": 4096, "model_type": "granitemoeshared",
    "normalization_function": "rmsnorm", "num_attention_heads": 12, "num_experts_per_tok": 8, "num_hidden_layers": 40,
    "num_key_value_heads": 4, "num_local_experts": 62, "output_router_logits": false, "pad_token_id": 0,
    "position_embedding_type": "rope", "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 10000, "router_aux_loss_coef": 0.0, "shared_intermediate_size": 1024, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "transformers_version": "4.49.0", "use_cache": true, "vocab_size": 49155})");
  EXPECT_EQ(Good(config).shared_ffn, 1024);
  config.erase("shared_intermediate_size");
  EXPECT_EQ(Good(config).shared_ffn, 0);
}

}  // namespace later_families
}  // namespace moed
