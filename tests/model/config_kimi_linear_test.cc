// Kimi-Linear's config.json to ModelSpec.
#include <gtest/gtest.h>

#include "core/model/family.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace kimi_linear_test {

using Json = nlohmann::json;

// Kimi-Linear-48B-A3B's, as released.
Json Released() {
  return Json::parse(R"({"architectures": ["KimiLinearForCausalLM"],
    "auto_map": {"AutoConfig": "configuration_kimi.KimiLinearConfig", "AutoModel": "modeling_kimi.KimiLinearModel"},
    "bos_token_id": 163584, "dtype": "bfloat16", "eos_token_id": 163586, "first_k_dense_replace": 1, "head_dim": 72,
    "hidden_act": "silu", "hidden_size": 2304, "initializer_range": 0.02, "intermediate_size": 9216, "kv_lora_rank": 512,
    "linear_attn_config": {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128,
      "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26], "num_heads": 32,
      "short_conv_kernel_size": 4},
    "mla_use_nope": true, "model_max_length": 1048576, "model_type": "kimi_linear", "moe_intermediate_size": 1024,
    "moe_layer_freq": 1, "moe_renormalize": true, "moe_router_activation_func": "sigmoid", "num_attention_heads": 32,
    "num_expert_group": 1, "num_experts": 256, "num_experts_per_token": 8, "num_hidden_layers": 27, "num_key_value_heads": 32,
    "num_nextn_predict_layers": 0, "num_shared_experts": 1, "pad_token_id": 163839, "q_lora_rank": null, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0, "routed_scaling_factor": 2.446,
    "tie_word_embeddings": false, "topk_group": 1, "transformers_version": "4.56.1", "use_cache": true, "use_grouped_topk": true,
    "v_head_dim": 128, "vocab_size": 163840})");
}

absl::StatusOr<ModelSpec> Read(const Json& config) { return (*FamilyNamed("kimi_linear"))->read_spec(config.dump(), ""); }

std::string Refusal(const Json& config) { return std::string(Read(config).status().message()); }

void ExpectNamed(const Json& config, std::string_view name) {
  const std::string refusal = Refusal(config);
  EXPECT_NE(refusal.find(name), std::string::npos) << refusal << "\nshould name " << name;
}

TEST(KimiLinearConfigTest, TheReleasedOneIsRead) {
  const auto spec = Read(Released());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->delta_net,
            (DeltaNetShape{.key_heads = 32, .value_heads = 32, .key_dim = 128, .value_dim = 128, .taps = 4, .gate_rank = 128}));
  EXPECT_EQ(spec->latent, (LatentAttention{.kv_rank = 512, .value_dim = 128}));
  EXPECT_TRUE(spec->unrotated);
  EXPECT_EQ(spec->head_dim, 192);
  EXPECT_EQ(spec->max_positions, 1048576);
  EXPECT_EQ(spec->top_k, 8);
  EXPECT_EQ(spec->shared_ffn, 1024);
  EXPECT_EQ(spec->dense_ffn, 9216);
  EXPECT_EQ(spec->router_scale, 2.446);
  for (int layer = 0; layer < 27; ++layer) {
    EXPECT_EQ(spec->recurrent[layer], layer % 4 != 3 && layer != 26) << layer;
    EXPECT_EQ(spec->moe[layer], layer > 0);
  }
}

// As transformers 5 writes it.
TEST(KimiLinearConfigTest, KeysOfTheirOwnSayTheSame) {
  Json config = Released();
  std::vector<std::string> types;
  for (int layer = 0; layer < 27; ++layer) {
    types.emplace_back(layer % 4 != 3 && layer != 26 ? "linear_attention" : "full_attention");
  }
  config.update({{"linear_head_dim", 128}, {"linear_num_heads", 32}, {"linear_conv_kernel_dim", 4}, {"layer_types", types}});
  const std::string expected = SpecToJson(*Read(Released()));
  EXPECT_EQ(Refusal(config), "");
  config.erase("linear_attn_config");
  EXPECT_EQ(SpecToJson(*Read(config)), expected);
  for (const char* key : {"linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "layer_types"}) {
    Json without = config;
    without.erase(key);
    ExpectNamed(without, key);
    without = config;
    without["linear_attn_config"] = Released()["linear_attn_config"];
    without[key] = key == std::string_view("layer_types") ? Json::array() : Json(3);
    ExpectNamed(without, key);
  }
}

TEST(KimiLinearConfigTest, WhatWouldComputeSomethingElseIsRefused) {
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{
           {"mla_use_nope", false},
           {"moe_router_activation_func", "softmax"},
           {"moe_layer_freq", 2},
           {"routed_scaling_factor", nullptr},
           {"num_experts_per_tok", 6},
           {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}}},
           {"head_dim", 128}}) {
    Json config = Released();
    config[key] = value;
    ExpectNamed(config, key);
  }
  Json grouped = Released();
  grouped.update({{"num_expert_group", 8}, {"topk_group", 4}});
  EXPECT_EQ(Read(grouped)->router_group_rank, GroupRank::kTwoLargestKeys);
  grouped["use_grouped_topk"] = false;
  ExpectNamed(grouped, "use_grouped_topk");
  for (const Json& layers : {Json({4, 8}), Json({4, 8, 12, 16, 20, 24, 26}), Json({4, 8, 12, 16, 20, 24, 28})}) {
    Json config = Released();
    config["linear_attn_config"]["full_attn_layers"] = layers;
    ExpectNamed(config, "full_attn_layers");
  }
  Json unknown = Released();
  unknown["linear_attn_config"]["gate_lower_bound"] = -5;
  ExpectNamed(unknown, "gate_lower_bound");
}

}  // namespace kimi_linear_test
}  // namespace moed
