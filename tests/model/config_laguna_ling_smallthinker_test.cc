// config.json of Laguna, Ling and SmallThinker, as their models were released.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/status.h"
#include "core/model/family.h"
#include "nlohmann/json.hpp"
#include "tests/model/config_reading.h"

namespace moed {
namespace laguna_ling_smallthinker_config {

using Json = nlohmann::json;

// The message of what the change is refused with; empty: it is not.
std::string RefusedWith(Json config, const Json& change) {
  config.merge_patch(change);
  return std::string(Read(config).status().message());
}

Json LagunaXs() {
  Json config = Json::parse(R"({
    "architectures": ["LagunaForCausalLM"], "model_type": "laguna", "attention_bias": false, "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_laguna.LagunaConfig"}, "bos_token_id": 2, "eos_token_id": [2, 24],
    "decoder_sparse_step": 1, "gating": "per-head", "head_dim": 128, "hidden_size": 2048, "intermediate_size": 8192,
    "max_position_embeddings": 262144, "mlp_only_layers": [0], "moe_apply_router_weight_on_input": false,
    "moe_intermediate_size": 512, "moe_routed_scaling_factor": 2.5, "moe_router_logit_softcapping": 0.0,
    "norm_topk_prob": true, "num_attention_heads": 48, "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 40,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "shared_expert_intermediate_size": 512, "sliding_window": 512,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 100352,
    "rope_parameters": {
      "full_attention": {"rope_theta": 500000.0, "rope_type": "yarn", "factor": 32.0, "beta_slow": 1.0, "beta_fast": 64.0,
                         "original_max_position_embeddings": 8192, "attention_factor": 1.3465735902799727,
                         "partial_rotary_factor": 0.5},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
    }
  })");
  for (int layer = 0; layer < 40; ++layer) {
    config["layer_types"].push_back(layer % 4 == 0 ? "full_attention" : "sliding_attention");
    config["mlp_layer_types"].push_back(layer == 0 ? "dense" : "sparse");
    config["num_attention_heads_per_layer"].push_back(layer % 4 == 0 ? 48 : 64);
    config["gating_types"].push_back("per_head");
  }
  return config;
}

TEST(LagunaConfigTest, KindsOfLayersHaveHeadsRotationsAndGatesOfTheirOwn) {
  const auto spec = Read(LagunaXs());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->QueryHeads(spec->HeadsOf(LayerId(0))), 48);
  EXPECT_EQ(spec->QueryHeads(spec->HeadsOf(LayerId(1))), 64);
  EXPECT_EQ(spec->GateWidth(spec->HeadsOf(LayerId(1))), 64) << "a gate for each head";
  EXPECT_EQ(spec->WindowOf(LayerId(0)), 0);
  EXPECT_EQ(spec->WindowOf(LayerId(39)), 512);
  EXPECT_EQ(spec->RotaryDims(spec->RotationOf(LayerId(0))), 64);
  EXPECT_EQ(spec->RotaryDims(spec->RotationOf(LayerId(1))), 128);
  EXPECT_NEAR(std::sqrt(spec->QueryPartFactor(0)), 0.1 * std::log(32.0) + 1, 1e-12);
  EXPECT_EQ(spec->QueryPartFactor(1), 1);
  EXPECT_EQ(spec->ScoreFactor(0), 1) << "the norm of the queries has it";
  EXPECT_EQ(spec->FirstFrequency(2), 32 + 64);
  EXPECT_EQ(spec->dense_ffn, 8192);
  EXPECT_EQ(spec->router_scale, 2.5);
  EXPECT_EQ(SpecFromJson(SpecToJson(*spec))->more_heads, spec->more_heads);
  EXPECT_EQ(SpecFromJson(SpecToJson(*spec))->more_rotations, spec->more_rotations);
}

// XS.2 says a second time what one kind of layers has, M.1 has layers of one kind.
TEST(LagunaConfigTest, OtherSpellings) {
  Json config = LagunaXs();
  Json& rope = config["rope_parameters"];
  rope["full_attention"]["original_max_position_embeddings"] = rope["original_max_position_embeddings"] = 4096;
  rope["full_attention"]["attention_factor"] = 1.0;
  config.merge_patch({{"partial_rotary_factor", 0.5},
                      {"max_position_embeddings", 131072},
                      {"router_aux_loss_coef", 0.0},
                      {"pad_token_id", 9},
                      {"use_bidirectional_attention", false},
                      {"gating", true}});
  for (const char* key :
       {"gating_types", "norm_topk_prob", "mlp_only_layers", "decoder_sparse_step", "moe_router_logit_softcapping"}) {
    config.erase(key);
  }
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->yarn->original_positions, 4096);
  EXPECT_EQ(spec->QueryPartFactor(0), 1);
  for (const char* key : {"original_max_position_embeddings", "partial_rotary_factor"}) rope["full_attention"].erase(key);
  EXPECT_EQ(SpecToJson(*Read(config)), SpecToJson(*spec));
  EXPECT_EQ(spec->RotaryDims(0), 64);
  EXPECT_EQ(spec->RotaryDims(1), 128);

  for (const char* key : {"layer_types", "num_attention_heads_per_layer", "partial_rotary_factor"}) config.erase(key);
  rope.erase("sliding_attention");
  config["sliding_window"] = 0;
  config["gating"] = "per-element";
  const auto uniform = Read(config);
  ASSERT_TRUE(uniform.ok()) << uniform.status();
  EXPECT_TRUE(uniform->windows.empty());
  EXPECT_EQ(uniform->rotation_count(), 1);
  EXPECT_EQ(uniform->rotary_dims, 0);
  EXPECT_EQ(uniform->GateWidth(uniform->HeadsOf(LayerId(0))), 48 * 128);
}

TEST(LagunaConfigTest, WhatIsNotImplementedIsRefusedByName) {
  const std::pair<Json, const char*> cases[] = {
      {{{"gating", false}}, "gating = false"},
      {{{"gating", "per-element"}}, "gating_types"},
      {{{"moe_router_logit_softcapping", 30.0}}, "moe_router_logit_softcapping"},
      {{{"moe_apply_router_weight_on_input", true}}, "moe_apply_router_weight_on_input"},
      {{{"attention_bias", true}}, "attention_bias"},
      {{{"use_bidirectional_attention", true}}, "use_bidirectional_attention"},
      {{{"norm_topk_prob", false}}, "norm_topk_prob"},
      {{{"mlp_only_layers", {0, 1}}}, "mlp_only_layers contradicts"},
      {{{"num_attention_heads_per_layer", {48}}}, "1 entries for 40 layers"},
      {{{"rope_parameters", {{"sliding_attention", nullptr}}}}, "rope_parameters.sliding_attention is missing"},
      {{{"rope_parameters", {{"other_attention", 1}}}}, "rope_parameters.other_attention"},
      {{{"rope_parameters", {{"full_attention", {{"partial_rotary_factor", 1.5}}}}}}, "partial_rotary_factor"},
      {{{"rope_parameters", {{"full_attention", {{"truncate", false}}}}}}, "full_attention.truncate"},
      {{{"sliding_window", 0}}, "sliding_window is missing or 0"},
      {{{"sinks", true}}, "unknown key \"sinks\""},
  };
  for (const auto& [change, expected] : cases) {
    EXPECT_NE(RefusedWith(LagunaXs(), change).find(expected), std::string::npos)
        << change << ": " << RefusedWith(LagunaXs(), change);
  }
  Json mixed = LagunaXs();
  mixed["num_attention_heads_per_layer"][5] = 48;
  EXPECT_NE(RefusedWith(mixed, Json::object()).find("has both 64 and 48"), std::string::npos);
}

// inclusionAI/Ling-lite-1.5.
Json LingLite() {
  return Json::parse(R"({
    "architectures": ["BailingMoeForCausalLM"], "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_bailing_moe.BailingMoeConfig"}, "eos_token_id": 126081, "pad_token_id": 126081,
    "first_k_dense_replace": 0, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.006, "intermediate_size": 1408,
    "max_position_embeddings": 32768, "model_type": "bailing_moe", "moe_intermediate_size": 1408, "num_experts": 64,
    "num_shared_experts": 2, "norm_topk_prob": true, "num_attention_heads": 16, "num_experts_per_tok": 6,
    "num_hidden_layers": 28, "num_key_value_heads": 4, "pretraining_tp": 1, "rms_norm_eps": 1e-06, "rope_scaling": null,
    "rope_theta": 600000, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.40.0",
    "use_cache": true, "use_bias": false, "use_qkv_bias": false, "vocab_size": 126464, "output_router_logits": false,
    "embedding_dropout": 0.0, "norm_head": false, "norm_softmax": false, "output_dropout": 0.0
  })");
}

// Ling-mini-2.0.
Json LingMini() {
  return Json::parse(R"({
    "architectures": ["BailingMoeV2ForCausalLM"], "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_bailing_moe_v2.BailingMoeV2Config"}, "eos_token_id": 156892,
    "pad_token_id": 156892, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 5120,
    "max_position_embeddings": 32768, "model_type": "bailing_moe", "moe_intermediate_size": 512, "norm_topk_prob": true,
    "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 20, "num_key_value_heads": 4,
    "head_dim": 128, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 600000, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "use_bias": false, "use_rmsnorm": true, "use_qkv_bias": false, "use_qk_norm": true,
    "num_shared_experts": 1, "moe_shared_expert_intermediate_size": 512, "partial_rotary_factor": 0.5, "router_dtype": "fp32",
    "moe_router_enable_expert_bias": true, "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4,
    "score_function": "sigmoid", "num_nextn_predict_layers": 0, "mtp_loss_scaling_factor": 0, "vocab_size": 157184,
    "embedding_dropout": 0.0, "output_dropout": 0.0, "max_window_layers": 20, "use_cache": true
  })");
}

TEST(LingConfigTest, BothVersionsCallThemselvesAlike) {
  const auto first = Read(LingLite()), second = Read(LingMini());
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(first->router_scoring, RouterScoring::kSoftmax);
  EXPECT_EQ(first->shared_ffn, 2816);
  EXPECT_EQ(first->rotary_dims, 0);
  EXPECT_EQ(first->qk_norm, ModelSpec::QkNorm::kNone);
  EXPECT_EQ(second->router_scoring, RouterScoring::kSigmoid);
  EXPECT_EQ(second->router_groups, 8);
  EXPECT_EQ(second->router_kept_groups, 4);
  EXPECT_EQ(second->router_group_rank, GroupRank::kTwoLargestKeys);
  EXPECT_EQ(second->rotary_dims, 64);
  EXPECT_EQ(second->qk_norm, ModelSpec::QkNorm::kPerHead);
  EXPECT_EQ(second->shared_ffn, 512);
  EXPECT_EQ(second->dense_ffn, 5120);
  Json named = LingMini();
  named["model_type"] = "bailing_moe_v2";
  named.erase("architectures");
  EXPECT_EQ(Read(named)->router_scoring, RouterScoring::kSigmoid);
}

// Ling-1T says the dimensions.
TEST(LingConfigTest, APartOfAHeadIsSaidInOneOfTwoWays) {
  Json config = LingMini();
  config.erase("partial_rotary_factor");
  EXPECT_NE(RefusedWith(config, Json::object()).find("partial_rotary_factor and rotary_dim are both missing"), std::string::npos);
  config["rotary_dim"] = 64;
  EXPECT_EQ(Read(config)->rotary_dims, 64);
  EXPECT_NE(RefusedWith(config, {{"partial_rotary_factor", 0.25}}).find("contradicts"), std::string::npos);
}

TEST(LingConfigTest, OneExpertATokenKeepsItsScore) {
  EXPECT_FALSE(Read([] {
                 Json config = LingMini();
                 config["num_experts_per_tok"] = 1;
                 return config;
               }())
                   ->norm_topk_prob);
}

TEST(LingConfigTest, WhatIsNotImplementedIsRefusedByName) {
  const std::tuple<Json, Json, const char*> cases[] = {
      {LingLite(), {{"norm_head", true}}, "norm_head"},
      {LingLite(), {{"use_qkv_bias", true}}, "use_qkv_bias"},
      {LingLite(), {{"use_bias", true}}, "use_bias"},
      {LingLite(), {{"use_qk_norm", true}}, "use_qk_norm"},
      {LingLite(), {{"n_group", 8}}, "n_group"},
      {LingMini(), {{"score_function", "softmax"}}, "score_function"},
      {LingMini(), {{"moe_router_enable_expert_bias", false}}, "moe_router_enable_expert_bias"},
      {LingMini(), {{"norm_topk_prob", false}}, "norm_topk_prob"},
      {LingMini(), {{"layer_group_size", 5}}, "unknown key \"layer_group_size\""},
  };
  for (const auto& [config, change, expected] : cases) {
    EXPECT_NE(RefusedWith(config, change).find(expected), std::string::npos) << change << ": " << RefusedWith(config, change);
  }
}

// PowerInfer/SmallThinker-4BA0.6B-Instruct.
Json SmallThinker() {
  Json config = Json::parse(R"({
    "architectures": ["SmallThinkerForCausalLM"], "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_smallthinker.SmallThinkerConfig"}, "bos_token_id": 151643,
    "eos_token_id": [151643, 151645], "head_dim": 128, "hidden_size": 1536, "initializer_range": 0.02, "max_length": null,
    "max_position_embeddings": 32768, "model_name": "smallthinker_4b_instruct", "model_type": "smallthinker",
    "moe_ffn_hidden_size": 768, "moe_num_active_primary_experts": 4, "moe_num_primary_experts": 32, "norm_topk_prob": true,
    "num_attention_heads": 12, "num_hidden_layers": 32, "num_key_value_heads": 2, "output_router_logits": false,
    "repetition_penalty": null, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1.5e6, "sliding_window_size": 4096,
    "temperature": null, "tie_word_embeddings": true, "tokenizer_class": "Qwen2Tokenizer", "top_p": null,
    "torch_dtype": "bfloat16", "transformers_version": "4.53.3", "use_cache": false, "vocab_size": 151936
  })");
  config["rope_layout"] = std::vector<int>(32, 1);
  config["sliding_window_layout"] = std::vector<int>(32, 0);
  return config;
}

TEST(SmallThinkerConfigTest, RoutersReadWhatTheLayerReads) {
  const auto spec = Read(SmallThinker());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->RoutesEarly());
  EXPECT_EQ(spec->activation, Activation::kGatedRelu);
  EXPECT_TRUE(spec->gated());
  EXPECT_EQ(spec->router_scoring, RouterScoring::kSigmoid);
  EXPECT_TRUE(spec->norm_topk_prob);
  EXPECT_TRUE(spec->tied_embeddings);
  EXPECT_TRUE(spec->windows.empty());
  EXPECT_TRUE(spec->Rotates(LayerId(0)));
}

// As the model of 21 billion parameters: it has no model_type.
TEST(SmallThinkerConfigTest, SomeLayersSlideAndOthersDoNotTurn) {
  Json config = SmallThinker();
  config.erase("model_type");
  config["moe_primary_router_apply_softmax"] = true;
  for (int layer = 0; layer < 32; layer += 4) config["rope_layout"][layer] = 0;
  for (int layer = 0; layer < 32; ++layer) config["sliding_window_layout"][layer] = layer % 4 == 0 ? 0 : 1;
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "smallthinker");
  EXPECT_FALSE(spec->Rotates(LayerId(4)));
  EXPECT_TRUE(spec->Rotates(LayerId(5)));
  EXPECT_EQ(spec->WindowOf(LayerId(4)), 0);
  EXPECT_EQ(spec->WindowOf(LayerId(5)), 4096);
  EXPECT_EQ(spec->router_scoring, RouterScoring::kSoftmax);
  EXPECT_TRUE(SpecFromJson(SpecToJson(*spec))->RoutesEarly());
  config["architectures"] = {"OtherForCausalLM"};
  EXPECT_NE(RefusedWith(config, Json::object()).find("key model_type is missing"), std::string::npos);
}

TEST(SmallThinkerConfigTest, WhatIsNotImplementedIsRefusedByName) {
  const std::pair<Json, const char*> cases[] = {
      {{{"moe_enable_early_router", false}}, "moe_enable_early_router"},
      {{{"moe_enable_secondary_experts", true}}, "moe_enable_secondary_experts"},
      {{{"moe_layer_layout", std::vector<int>(32, 0)}}, "moe_layer_layout has 0"},
      {{{"use_qk_norm", true}}, "use_qk_norm"},
      {{{"rope_layout", {1, 0}}}, "rope_layout has 2 entries for 32 layers"},
      {{{"norm_topk_prob", false}}, "norm_topk_prob"},
      {{{"hidden_act", "silu"}}, "hidden_act"},
  };
  for (const auto& [change, expected] : cases) {
    EXPECT_NE(RefusedWith(SmallThinker(), change).find(expected), std::string::npos)
        << change << ": " << RefusedWith(SmallThinker(), change);
  }
}

}  // namespace laguna_ling_smallthinker_config
}  // namespace moed
