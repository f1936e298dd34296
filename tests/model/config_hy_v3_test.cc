// Hy3's config.json to ModelSpec.
#include <gtest/gtest.h>

#include "core/model/family.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace hy_v3_test {

using Json = nlohmann::json;

// tencent/Hy3's, as released.
Json Hy3() {
  return Json::parse(R"({"architectures": ["HYV3ForCausalLM"], "bos_token_id": 120000, "dtype": "bfloat16",
    "enable_attention_fp32_softmax": false, "enable_lm_head_fp32": true, "enable_moe_fp32_combine": false,
    "eod_token_id": 120026, "eos_token_id": 120025, "expert_hidden_dim": 1536, "moe_intermediate_size": 1536,
    "first_k_dense_replace": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.006,
    "intermediate_size": 13312, "max_position_embeddings": 262144, "model_type": "hy_v3",
    "moe_router_enable_expert_bias": true, "moe_router_use_sigmoid": true, "num_attention_heads": 64, "num_experts": 192,
    "num_experts_per_tok": 8, "num_hidden_layers": 80, "num_key_value_heads": 8, "num_nextn_predict_layers": 1,
    "num_shared_experts": 1, "output_router_logits": true, "pad_token_id": 120002, "qk_norm": true, "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 11158840.0, "rope_type": "default"}, "route_norm": true, "router_scaling_factor": 2.826,
    "sep_token_id": 120007, "tie_word_embeddings": false, "transformers_version": "5.6.0", "use_cache": true,
    "use_grouped_mm": false, "vocab_size": 120832})");
}

absl::StatusOr<ModelSpec> Read(const Json& config) { return (*FamilyNamed("hy_v3"))->read_spec(config.dump(), ""); }

TEST(HyV3ConfigTest, ItsSizesAreRead) {
  const auto spec = Read(Hy3());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rope_theta, 11158840.0);
  EXPECT_EQ(spec->qk_norm, ModelSpec::QkNorm::kPerHead);
  EXPECT_EQ(spec->router_scoring, RouterScoring::kSigmoid);
  EXPECT_TRUE(spec->router_correction);
  EXPECT_TRUE(spec->norm_topk_prob);
  EXPECT_EQ(spec->router_scale, 2.826);
  EXPECT_EQ(spec->shared_ffn, 1536);
  EXPECT_EQ(spec->dense_ffn, 13312);
  for (int layer = 0; layer < 80; ++layer) EXPECT_EQ(spec->moe[layer], layer > 0);
}

TEST(HyV3ConfigTest, WhatWouldComputeSomethingElseIsRefused) {
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, Json>>{{"qk_norm", false},
                                                                                      {"route_norm", false},
                                                                                      {"moe_router_use_sigmoid", false},
                                                                                      {"moe_router_enable_expert_bias", false},
                                                                                      {"router_scaling_factor", nullptr},
                                                                                      {"num_shared_experts", nullptr},
                                                                                      {"expert_hidden_dim", 1024}}) {
    Json config = Hy3();
    config[key] = value;
    const std::string refusal(Read(config).status().message());
    EXPECT_NE(refusal.find(key), std::string::npos) << refusal << "\nshould name " << key;
  }
}

}  // namespace hy_v3_test
}  // namespace moed
