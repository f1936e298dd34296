// config.json of families whose routers are sigmoids with a correction, as they are released.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/model/family.h"
#include "nlohmann/json.hpp"
#include "tests/model/config_reading.h"

namespace moed {
namespace config_sigmoid {

using Json = nlohmann::json;

// Refused with the key's name, wherever `key` has the value.
void ExpectRefused(Json config, const std::string& key, const Json& value) {
  config[key] = value;
  const absl::Status status = Read(config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key << " = " << value;
  EXPECT_NE(status.message().find(key), absl::string_view::npos) << status << "\nshould name " << key;
}

std::vector<std::string> ThreeOfFourSlide(int layers) {
  std::vector<std::string> types;
  for (int layer = 1; layer <= layers; ++layer) types.emplace_back(layer % 4 == 0 ? "full_attention" : "sliding_attention");
  return types;
}

Json TrinityMini() {
  Json config = Json::parse(R"({
    "architectures": ["AfmoeForCausalLM"], "attention_dropout": 0.0, "dtype": "bfloat16", "global_attn_every_n_layers": 4,
    "auto_map": {"AutoConfig": "configuration_afmoe.AfmoeConfig"}, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 6144, "load_balance_coeff": 0.001, "max_position_embeddings": 131072,
    "model_type": "afmoe", "moe_intermediate_size": 1024, "mup_enabled": true, "n_group": 1, "num_attention_heads": 32,
    "num_dense_layers": 2, "num_expert_groups": 1, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 32,
    "num_key_value_heads": 4, "num_limited_groups": 1, "num_shared_experts": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 10000, "route_norm": true, "route_scale": 2.826, "score_func": "sigmoid", "sliding_window": 2048,
    "tie_word_embeddings": false, "topk_group": 1, "transformers_version": "4.57.3", "use_cache": true, "use_grouped_mm": true,
    "vocab_size": 200192})");
  config["layer_types"] = ThreeOfFourSlide(32);
  return config;
}

TEST(AfmoeConfigTest, TheReleasedOneIsRead) {
  const auto spec = Read(TrinityMini());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->norms, ModelSpec::Norms::kBoth);
  EXPECT_EQ(spec->qk_norm, ModelSpec::QkNorm::kPerHead);
  EXPECT_TRUE(spec->attention_gate && spec->router_correction && spec->norm_topk_prob && !spec->qkv_bias);
  EXPECT_DOUBLE_EQ(spec->embedding_scale * spec->embedding_scale, 2048);
  EXPECT_EQ(spec->router_scoring, RouterScoring::kSigmoid);
  EXPECT_EQ(spec->router_scale, 2.826);
  EXPECT_EQ(spec->shared_ffn, 1024);
  EXPECT_EQ(spec->dense_ffn, 6144);
  EXPECT_TRUE(!spec->moe[1] && spec->moe[2]);
  EXPECT_EQ(spec->WindowOf(LayerId(2)), 2048);
  EXPECT_EQ(spec->WindowOf(LayerId(3)), 0);
  EXPECT_TRUE(spec->Rotates(LayerId(2)) && !spec->Rotates(LayerId(3)));
  Json without_types = TrinityMini();
  without_types.erase("layer_types");
  EXPECT_EQ(SpecToJson(*Read(without_types)), SpecToJson(*spec)) << "every fourth layer sees all";
}

TEST(AfmoeConfigTest, KindsOfLayersSayWhichHeadsTurn) {
  Json config = TrinityMini();
  config["layer_types"] = std::vector<std::string>(32, "sliding_attention");
  auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(!spec->unrotated && spec->unrotated_layers.empty());
  config["layer_types"] = std::vector<std::string>(32, "full_attention");
  spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->unrotated && spec->unrotated_layers.empty() && spec->windows.empty());
  config = TrinityMini();
  config["mup_enabled"] = false, config["attention_bias"] = true;
  spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->embedding_scale, 1);
  EXPECT_TRUE(spec->qkv_bias && spec->o_bias);
}

TEST(AfmoeConfigTest, WhatIsNotComputedIsRefusedByName) {
  ExpectRefused(TrinityMini(), "route_norm", false);
  ExpectRefused(TrinityMini(), "score_func", "softmax");
  ExpectRefused(TrinityMini(), "n_group", 2);
  ExpectRefused(TrinityMini(), "num_expert_groups", 4);
  ExpectRefused(TrinityMini(), "sliding_window", nullptr);
  ExpectRefused(TrinityMini(), "head_dim", nullptr);
  ExpectRefused(TrinityMini(), "num_dense_layers", 33);
  ExpectRefused(TrinityMini(), "global_attn_every_n_layers", 0);
}

Json Dots() {
  return Json::parse(R"({
    "architectures": ["Dots1ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": null,
    "eos_token_id": 151649, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 10944, "max_position_embeddings": 32768, "model_type": "dots1", "moe_intermediate_size": 1408,
    "moe_layer_freq": 1, "n_routed_experts": 128, "n_shared_experts": 2, "norm_topk_prob": true, "num_attention_heads": 32,
    "num_experts_per_tok": 6, "num_hidden_layers": 62, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": null, "rope_theta": 10000000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
    "sliding_window": null, "tie_word_embeddings": false, "topk_method": "noaux_tc", "torch_dtype": "bfloat16",
    "transformers_version": "4.46.3", "use_cache": true, "use_sliding_window": false, "vocab_size": 152064})");
}

TEST(Dots1ConfigTest, TheReleasedOneIsRead) {
  auto spec = Read(Dots());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->qk_norm, ModelSpec::QkNorm::kPerHead);
  EXPECT_TRUE(spec->windows.empty() && spec->router_correction && spec->norm_topk_prob);
  EXPECT_EQ(spec->shared_ffn, 2 * 1408);
  EXPECT_EQ(spec->router_scale, 2.5);
  EXPECT_TRUE(!spec->moe[0] && spec->moe[1]);
  Json config = Dots();
  config.merge_patch({{"max_window_layers", 62}, {"n_group", 1}, {"topk_group", 1}, {"scoring_func", "noaux_tc"}});
  EXPECT_EQ(SpecToJson(*Read(config)), SpecToJson(*spec)) << "as converters write it";
  config.erase("norm_topk_prob");
  EXPECT_FALSE(Read(config)->norm_topk_prob) << "as in transformers";
}

TEST(Dots1ConfigTest, TheLastLayersMayHaveAWindow) {
  Json config = Dots();
  config["max_window_layers"] = 60;
  EXPECT_TRUE(Read(config)->windows.empty()) << "a window that is null";
  config["sliding_window"] = 512;
  auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->WindowOf(LayerId(59)), 0);
  EXPECT_EQ(spec->WindowOf(LayerId(60)), 512);
  EXPECT_TRUE(spec->Rotates(LayerId(60)) && spec->Rotates(LayerId(0)));
  config.erase("sliding_window");
  EXPECT_NE(Read(config).status().message().find("sliding_window"), absl::string_view::npos) << "transformers takes 4096";
  ExpectRefused(Dots(), "scoring_func", "softmax");
  ExpectRefused(Dots(), "num_local_experts", 64);
}

Json SolarOpen() {
  return Json::parse(R"({
    "architectures": ["SolarOpenForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "first_k_dense_replace": 0,
    "head_dim": 128, "hidden_size": 4096, "intermediate_size": 10240, "max_position_embeddings": 131072,
    "model_type": "solar_open", "moe_intermediate_size": 1280, "n_routed_experts": 128, "n_shared_experts": 1,
    "norm_topk_prob": true, "num_attention_heads": 64, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 8, "pad_token_id": 2, "partial_rotary_factor": 1.0, "rms_norm_eps": 1e-05, "rope_theta": 1000000,
    "routed_scaling_factor": 1.0, "rope_scaling": {"factor": 2.0, "original_max_position_embeddings": 65536, "type": "yarn"},
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.57.1", "use_cache": true,
    "vocab_size": 196608})");
}

TEST(SolarOpenConfigTest, TheReleasedOneIsRead) {
  const auto spec = Read(SolarOpen());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->yarn->factor, 2);
  EXPECT_EQ(spec->qk_norm, ModelSpec::QkNorm::kNone);
  EXPECT_TRUE(spec->MoeLayers().size() == 48 && spec->router_correction && spec->norm_topk_prob);
  EXPECT_EQ(spec->shared_ffn, 1280);
  Json biased = SolarOpen();
  biased["attention_bias"] = true;
  EXPECT_TRUE(Read(biased)->qkv_bias && !Read(biased)->o_bias);
  ExpectRefused(SolarOpen(), "use_qk_norm", true);
  ExpectRefused(SolarOpen(), "first_k_dense_replace", 1);
  ExpectRefused(SolarOpen(), "partial_rotary_factor", 0.5);
  ExpectRefused(SolarOpen(), "head_dim", nullptr);
}

Json Sarvam30B() {
  return Json::parse(R"({
    "architectures": ["SarvamMoEForCausalLM"], "attention_dropout": 0.0, "embedding_dropout": 0.0, "eos_token_id": 1,
    "first_k_dense_replace": 1, "head_dim": 64, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.006,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "max_window_layers": 19, "model_type": "sarvam_moe",
    "moe_intermediate_size": 1024, "moe_router_enable_expert_bias": true, "moe_shared_expert_intermediate_size": 1024,
    "n_group": 1, "norm_topk_prob": true, "num_attention_heads": 64, "num_experts": 128, "num_experts_per_tok": 6,
    "num_hidden_layers": 19, "num_key_value_heads": 4, "num_shared_experts": 1, "output_dropout": 0.0, "pad_token_id": 0,
    "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 8000000, "router_dtype": "fp32",
    "routed_scaling_factor": 2.5, "score_function": "sigmoid", "tie_word_embeddings": false, "topk_group": 1,
    "torch_dtype": "bfloat16", "use_bias": false, "use_cache": true, "use_qk_norm": true, "use_qkv_bias": false,
    "use_rmsnorm": true, "vocab_size": 262144})");
}

TEST(SarvamMoeConfigTest, TheReleasedOneIsRead) {
  const auto spec = Read(Sarvam30B());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->qk_norm, ModelSpec::QkNorm::kPerHead);
  EXPECT_EQ(spec->experts, 128);
  EXPECT_EQ(spec->shared_ffn, 1024);
  EXPECT_EQ(spec->rotary_dims, 0);
  EXPECT_TRUE(!spec->moe[0] && spec->moe[1]);
  Json as_transformers = Sarvam30B();
  for (const auto& [from, to] :
       {std::pair("num_experts", "n_routed_experts"), std::pair("num_shared_experts", "n_shared_experts")}) {
    as_transformers[to] = as_transformers[from];
    as_transformers.erase(from);
  }
  EXPECT_EQ(SpecToJson(*Read(as_transformers)), SpecToJson(*spec));
  ExpectRefused(Sarvam30B(), "score_function", "softmax");
  ExpectRefused(Sarvam30B(), "use_qkv_bias", true);
  ExpectRefused(Sarvam30B(), "moe_shared_expert_intermediate_size", 512);
  ExpectRefused(Sarvam30B(), "n_routed_experts", 64);
}

Json KExaone() {
  Json config = Json::parse(R"({
    "architectures": ["ExaoneMoEForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "dtype": "bfloat16",
    "eos_token_id": 53, "first_last_k_dense_replace": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 6144,
    "initializer_range": 0.02, "intermediate_size": 18432, "max_position_embeddings": 262144, "model_type": "exaone_moe",
    "moe_intermediate_size": 2048, "n_group": 1, "norm_topk_prob": true, "num_attention_heads": 64, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 8, "num_shared_experts": 1,
    "pad_token_id": 0, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000, "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "sliding_window": 128, "sliding_window_pattern": "LLLG", "tie_word_embeddings": false, "tokenizer_class": "GPT2Tokenizer",
    "topk_group": 1, "topk_method": "noaux_tc", "transformers_version": "5.0.0.dev0", "use_cache": true, "vocab_size": 153600})");
  config["layer_types"] = ThreeOfFourSlide(48);
  std::vector<bool> moe(48, true);
  moe[0] = false;
  config["is_moe_layer"] = moe;
  return config;
}

TEST(ExaoneMoeConfigTest, TheReleasedOneIsRead) {
  const auto spec = Read(KExaone());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->qk_norm, ModelSpec::QkNorm::kPerHead);
  EXPECT_EQ(spec->WindowOf(LayerId(0)), 128);
  EXPECT_TRUE(spec->Rotates(LayerId(2)) && !spec->Rotates(LayerId(3)));
  EXPECT_TRUE(!spec->moe[0] && spec->moe[1]);
  EXPECT_EQ(spec->dense_ffn, 18432);
  Json by_number = KExaone();
  by_number.erase("layer_types");
  by_number["sliding_window_pattern"] = 4;
  EXPECT_EQ(SpecToJson(*Read(by_number)), SpecToJson(*spec));
  by_number["sliding_window_pattern"] = "LLLG";
  EXPECT_NE(Read(by_number).status().message().find("sliding_window_pattern"), absl::string_view::npos);
}

// transformers has it so that the layers that see all turn where no layer has a window, and only there.
TEST(ExaoneMoeConfigTest, WithoutAWindowAllLayersTurn) {
  Json config = KExaone();
  config["layer_types"] = std::vector<std::string>(48, "full_attention");
  EXPECT_TRUE(Read(config)->unrotated);
  config["sliding_window"] = nullptr;
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(!spec->unrotated && spec->unrotated_layers.empty() && spec->windows.empty());
  config.erase("sliding_window");
  EXPECT_FALSE(Read(config).ok());
  ExpectRefused(KExaone(), "sliding_window", nullptr);
  ExpectRefused(KExaone(), "is_moe_layer", std::vector<bool>(48, true));
  ExpectRefused(KExaone(), "scoring_func", "softmax");
  ExpectRefused(KExaone(), "num_key_value_heads", nullptr);
}

TEST(ExaoneMoeConfigTest, LayersThatPredictFurtherTokensAreLeftOut) {
  const Family& family = **FamilyNamed("exaone_moe");
  const ModelSpec spec = *Read(KExaone());
  EXPECT_TRUE(family.unused(spec, "mtp.layers.0.self_attn.q_proj.weight"));
  EXPECT_FALSE(family.unused(spec, "model.layers.0.self_attn.gate.weight"));
}

}  // namespace config_sigmoid
}  // namespace moed
