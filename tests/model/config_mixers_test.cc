// config.json of families whose layers are not plain attention: recurrences, convolutions, latent attention.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/model/family.h"
#include "nlohmann/json.hpp"
#include "tests/model/config_reading.h"

namespace moed {
namespace config_mixers {

using Json = nlohmann::json;

TEST(FamilyTest, RecurrentLayersFollowLayerTypes) {
  Json config = ConfigOf("qwen3_next");
  EXPECT_EQ(Read(config)->recurrent, (std::vector<bool>{true, true, false, true}));
  config.erase("layer_types");
  EXPECT_EQ(Read(config)->recurrent, (std::vector<bool>{true, true, true, false})) << "every fourth has attention";
  config["full_attention_interval"] = 2;
  EXPECT_EQ(Read(config)->recurrent, (std::vector<bool>{true, false, true, false}));
  config["layer_types"] = std::vector<std::string>(4, "linear_attention");
  ExpectRefusal(Read(config).status(), "recurrent", "4 of 4");
  config["layer_types"] = {"linear_attention", "full_attention", "sliding_attention", "full_attention"};
  ExpectRefusal(Read(config).status(), "layer_types", "linear_attention");
  config.erase("layer_types");
  for (const char* key : {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
                          "linear_conv_kernel_dim"}) {
    for (const Json& bad : {Json(0), Json(1025), Json("2"), Json()}) {
      Json other = config;
      other[key] = bad;
      ExpectRefusal(Read(other).status(), key, "");
    }
  }
  config["linear_num_value_heads"] = 5;
  ExpectRefusal(Read(config).status(), "value_heads", "5");
}

TEST(FamilyTest, ShortConvolutionsAreRead) {
  Json config = ConfigOf("lfm2_moe");
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->recurrent, (std::vector<bool>{true, false, true, false, true}));
  EXPECT_EQ(spec->short_convolution->taps, 3);
  EXPECT_EQ(spec->moe, (std::vector<bool>{false, false, true, true, true}));
  EXPECT_TRUE(spec->tied_embeddings);
  EXPECT_TRUE(spec->router_correction);
  config.erase("tie_word_embeddings");
  EXPECT_TRUE(Read(config)->tied_embeddings) << "unless the file says otherwise";
  config["tie_embedding"] = false;
  EXPECT_FALSE(Read(config)->tied_embeddings) << "as the released files spell it";
  config["use_expert_bias"] = false;
  EXPECT_FALSE(Read(config)->router_correction);
  config["conv_bias"] = true;
  ExpectRefusal(Read(config).status(), "conv_bias", "true");
  config["conv_bias"] = false;
  config["conv_L_cache"] = 1;
  ExpectRefusal(Read(config).status(), "conv_L_cache", "1");
  config["conv_L_cache"] = 3;
  config.erase("layer_types");
  ExpectRefusal(Read(config).status(), "layer_types", "missing");
}

TEST(FamilyTest, Mamba2IsRead) {
  Json config = ConfigOf("granitemoehybrid");
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->recurrent, (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(*spec->mamba2,
            (Mamba2Shape{.heads = 6, .head_dim = 10, .groups = 2, .state_dim = 11, .taps = 4, .convolution_bias = true}));
  EXPECT_TRUE(spec->unrotated);
  const std::string expected = SpecToJson(*spec);
  config["layer_types"] = {"mamba", "mamba", "attention", "mamba"};
  config["mamba_d_head"] = "auto";
  config["time_step_limit"] = nullptr;
  config["position_embedding_type"] = nullptr;
  EXPECT_EQ(SpecToJson(*Read(config)), expected) << "as released";
  config["position_embedding_type"] = "rope";
  EXPECT_FALSE(Read(config)->unrotated);
  const std::pair<const char*, Json> refused[] = {{"mamba_n_groups", 4},
                                                  {"mamba_n_heads", 7},
                                                  {"mamba_d_head", 12},
                                                  {"mamba_proj_bias", true},
                                                  {"mamba_d_conv", 17},
                                                  {"mamba_d_state", 0},
                                                  {"position_embedding_type", "alibi"},
                                                  {"time_step_limit", {0.0, 1.0}},
                                                  {"num_local_experts", 0}};
  for (const auto& [key, value] : refused) {
    Json other = config;
    other[key] = value;
    ExpectRefusal(Read(other).status(), std::string_view(key) == "mamba_n_groups" ? "groups" : key, "");
  }
}

TEST(FamilyTest, LayersThatAreOneBlockAreRead) {
  Json config = ConfigOf("nemotron_h");
  config.erase("layers_block_type");
  config["hybrid_override_pattern"] = "ME*-M";
  config["num_hidden_layers"] = 5;
  config["intermediate_size"] = 22;
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->mixers, (std::vector<bool>{true, false, true, false, true}));
  EXPECT_EQ(spec->recurrent, (std::vector<bool>{true, false, false, false, true}));
  EXPECT_EQ(spec->moe, (std::vector<bool>{false, true, false, false, false}));
  EXPECT_EQ(spec->dense_ffn, 22);
  EXPECT_FALSE(spec->gated());
  EXPECT_TRUE(spec->unrotated);
  const std::string expected = SpecToJson(*spec);
  config["time_step_limit"] = nullptr;
  config["mtp_hybrid_override_pattern"] = "*E";
  EXPECT_EQ(SpecToJson(*Read(config)), expected);
  for (const auto& [mamba, attention] : {std::pair("mamba", "attention"), std::pair("linear_attention", "full_attention")}) {
    Json named = config;
    named.erase("hybrid_override_pattern");
    named.erase("num_hidden_layers");
    named["layers_block_type"] = {mamba, "moe", attention, "mlp", mamba};
    EXPECT_EQ(SpecToJson(*Read(named)), expected) << mamba;
  }

  const std::pair<const char*, Json> refused[] = {{"hybrid_override_pattern", "MEX"},
                                                  {"hybrid_override_pattern", ""},
                                                  {"num_hidden_layers", 6},
                                                  {"layers_block_type", {"mamba", "convolution"}},
                                                  {"mlp_hidden_act", "silu"},
                                                  {"mamba_hidden_act", "relu2"},
                                                  {"moe_latent_size", 12},
                                                  {"use_bias", true},
                                                  {"mamba_proj_bias", true},
                                                  {"sliding_window", 8},
                                                  {"conv_kernel", 17},
                                                  {"time_step_limit", {0.0, 1.0}},
                                                  {"moe_shared_expert_intermediate_size", 0}};
  for (const auto& [key, value] : refused) {
    Json other = config;
    other[key] = value;
    ExpectRefusal(Read(other).status(), key, "");
  }
  config["hybrid_override_pattern"] = "MEM-M";
  ExpectRefusal(Read(config).status(), "some have attention", "");
  config.erase("hybrid_override_pattern");
  ExpectRefusal(Read(config).status(), "hybrid_override_pattern", "missing");
}

// DeepSeek-V3's config.json as released, and Kimi K2's where it differs.
Json ReleasedDeepSeekV3() {
  return Json::parse(R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1,
    "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432,
    "kv_lora_rank": 512, "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
    "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
    "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                     "original_max_position_embeddings": 4096, "type": "yarn"},
    "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": false, "topk_group": 4,
    "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128,
    "vocab_size": 129280})");
}

TEST(FamilyTest, ReleasedLatentAttentionIsRead) {
  const auto spec = Read(ReleasedDeepSeekV3());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->latent, (LatentAttention{.q_rank = 1536, .kv_rank = 512, .value_dim = 128}));
  EXPECT_EQ(spec->head_dim, 192);
  EXPECT_EQ(spec->rotary_dims, 64);
  const double magnitude = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(spec->AttentionScale(), magnitude * magnitude / std::sqrt(192.0));
  EXPECT_EQ(spec->yarn->attention_factor, 1);
  Json kimi = ReleasedDeepSeekV3();
  kimi.update(
      {{"model_type", "kimi_k2"}, {"n_group", 1}, {"topk_group", 1}, {"n_routed_experts", 384}, {"first_k_dense_replace", 1}});
  kimi.update({{"aux_loss_alpha", 0.001}, {"seq_aux", true}, {"pretraining_tp", 1}, {"rope_theta", 50000.0}});
  const auto of_kimi = Read(kimi);
  ASSERT_TRUE(of_kimi.ok()) << of_kimi.status();
  EXPECT_EQ(of_kimi->latent, spec->latent);
  EXPECT_EQ(of_kimi->router_groups, 1);
}

// Attention that chooses positions by an index, ranks that do not fill panels, another meaning of normalised weights.
TEST(FamilyTest, LatentAttentionThatIsNotComputedIsRefusedByName) {
  Json config = ReleasedDeepSeekV3();
  config["index_topk"] = 2048;
  ExpectRefusal(Read(config).status(), "index_topk", "2048");
  config["model_type"] = "deepseek_v32";
  ExpectRefusal(Read(config).status(), "deepseek_v32", "deepseek_v3");
  config = ReleasedDeepSeekV3();
  config["kv_lora_rank"] = 500;
  ExpectRefusal(Read(config).status(), "kv_rank", "500");
  config = ConfigOf("deepseek_v2");
  config["norm_topk_prob"] = true;
  config["routed_scaling_factor"] = 16.0;
  ExpectRefusal(Read(config).status(), "norm_topk_prob", "16");
  config["routed_scaling_factor"] = 1.0;
  EXPECT_TRUE(Read(config)->norm_topk_prob);
  config["num_experts_per_tok"] = 1;
  ExpectRefusal(Read(config).status(), "norm_topk_prob", "num_experts_per_tok");
}

TEST(FamilyTest, DenseLayersOfGlmFlashFollowEitherKey) {
  Json config = ConfigOf("glm4_moe_lite");
  const std::string expected = SpecToJson(*Read(config));
  config.erase("mlp_layer_types");
  config["first_k_dense_replace"] = 1;
  EXPECT_EQ(SpecToJson(*Read(config)), expected);
  config["mlp_layer_types"] = {"sparse", "dense"};
  ExpectRefusal(Read(config).status(), "mlp_layer_types", "first_k_dense_replace");
  config.erase("first_k_dense_replace");
  EXPECT_EQ(Read(config)->moe, (std::vector<bool>{true, false}));
}

}  // namespace config_mixers
}  // namespace moed
