// Keys of one family or a few: windows, heads, sparsity, and what the files of a release say besides.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/model/family.h"
#include "core/model/spec_check.h"
#include "nlohmann/json.hpp"
#include "tests/model/config_reading.h"

namespace moed {
namespace own_keys {

using Json = nlohmann::json;

TEST(FamilyTest, SlidingWindowCountsOnlyWhereItIsUsed) {
  Json mixtral = ConfigOf("mixtral");
  mixtral["sliding_window"] = mixtral["max_position_embeddings"];
  EXPECT_TRUE(Read(mixtral)->windows.empty()) << "no position is further away";
  mixtral["sliding_window"] = 8;
  EXPECT_EQ(Read(mixtral)->windows, std::vector<int>(mixtral["num_hidden_layers"].get<size_t>(), 8));
  mixtral["sliding_window"] = 0;
  ExpectRefusal(Read(mixtral).status(), "sliding_window", "0");
  for (const char* family : {"qwen2_moe", "qwen3_moe"}) {
    Json qwen = ConfigOf(family);
    qwen["sliding_window"] = 32768;
    qwen["use_sliding_window"] = false;
    EXPECT_TRUE(Read(qwen).ok()) << Read(qwen).status();
  }
}

TEST(FamilyTest, KindsOfLayersHaveHeadsOfTheirOwn) {
  const Json good = ConfigOf("gemma4_text");
  const ModelSpec spec = *Read(good);
  EXPECT_EQ(spec.windows, (std::vector<int>{9, 0, 9, 0}));
  EXPECT_EQ(spec.HeadsOf(LayerId(0)), (HeadShape{3, 8, false}));
  EXPECT_EQ(spec.HeadsOf(LayerId(1)), (HeadShape{2, 14, true}));
  EXPECT_EQ(spec.rotation(spec.RotationOf(LayerId(0))), (Rotation{10000, {}, 0}));
  EXPECT_EQ(spec.rotation(spec.RotationOf(LayerId(1))), (Rotation{1000000, {}, 2})) << "0.4 of 7 pairs, rounded down";
  EXPECT_EQ(spec.FirstFrequency(1), 7);
  EXPECT_EQ(spec.FirstFrequency(2), 7 + 4);

  Json config = good;
  config.erase("global_head_dim");
  config.erase("num_global_key_value_heads");
  config["per_layer_config"] = {{"1", {{"head_dim", 14}, {"num_key_value_heads", 2}}},
                                {"3", {{"head_dim", 14}, {"num_key_value_heads", 2}}}};
  EXPECT_EQ(SpecToJson(*Read(config)), SpecToJson(spec)) << "as transformers writes them";
  config["per_layer_config"]["3"]["head_dim"] = 12;
  ExpectRefusal(Read(config).status(), "per_layer_config.3", "");
  config["per_layer_config"]["3"]["head_dim"] = 14;
  config["per_layer_config"]["0"] = config["per_layer_config"]["3"];
  ExpectRefusal(Read(config).status(), "per_layer_config", "0");
  config["per_layer_config"] = Json::object();
  EXPECT_EQ(Read(config)->HeadsOf(LayerId(1)).head_dim, good["head_dim"].get<int>()) << "as the layers with windows";

  config = good;
  config["attention_k_eq_v"] = false;
  EXPECT_EQ(Read(config)->HeadsOf(LayerId(1)), (HeadShape{3, 14, false})) << "as many as the others have";
  config = good;
  config.erase("rope_parameters");
  EXPECT_EQ(Read(config)->rotation(0), (Rotation{1000000, {}, 1})) << "as transformers where nothing is said";
  config = good;
  config["layer_types"] = {"full_attention", "full_attention", "full_attention", "sliding_attention"};
  ExpectRefusal(Read(config).status(), "layer_types", "full_attention");
  config["layer_types"] = std::vector<std::string>(4, "full_attention");
  EXPECT_TRUE(Read(config)->more_heads.empty());
  for (const auto& [at, value] : {std::pair("/full_attention/partial_rotary_factor"_json_pointer, Json(0.01)),
                                  std::pair("/full_attention/partial_rotary_factor"_json_pointer, Json(1.5)),
                                  std::pair("/full_attention/factor"_json_pointer, Json(2.0)),
                                  std::pair("/sliding_attention/partial_rotary_factor"_json_pointer, Json(0.5))}) {
    Json changed = good;
    changed["rope_parameters"][at] = value;
    ExpectRefusal(Read(changed).status(), at.back(), value.dump());
  }
}

TEST(FamilyTest, OtherModelsOfGemma4AreRefusedByName) {
  const Json good = ConfigOf("gemma4_text");
  for (const auto& [key, value] :
       {std::pair("enable_moe_block", Json(false)), std::pair("hidden_size_per_layer_input", Json(256)),
        std::pair("num_kv_shared_layers", Json(2)), std::pair("use_double_wide_mlp", Json(true)),
        std::pair("use_bidirectional_attention", Json("all")), std::pair("hidden_activation", Json("silu"))}) {
    Json config = good;
    config[key] = value;
    ExpectRefusal(Read(config).status(), key, value.dump());
  }
  Json config = good;
  config.erase("hidden_size_per_layer_input");
  ExpectRefusal(Read(config).status(), "hidden_size_per_layer_input", "missing");
}

// google/gemma-4-26B-A4B's config.json as released: what it says of the text.
TEST(FamilyTest, TheTextPartOfGemma4IsRead) {
  Json text = ConfigOf("gemma4_text");
  text.update({{"hidden_size", 2816}, {"num_hidden_layers", 30}, {"num_attention_heads", 16}, {"head_dim", 256}});
  text.update({{"global_head_dim", 512}, {"num_key_value_heads", 8}, {"num_global_key_value_heads", 2}});
  text.update({{"num_experts", 128}, {"top_k_experts", 8}, {"moe_intermediate_size", 704}, {"intermediate_size", 2112}});
  text.update({{"final_logit_softcapping", 30.0}, {"sliding_window", 1024}, {"use_bidirectional_attention", "vision"}});
  text["rope_parameters"]["full_attention"]["partial_rotary_factor"] = 0.25;
  text.erase("layer_types");
  Json config = {{"model_type", "gemma4"},
                 {"architectures", {"Gemma4ForConditionalGeneration"}},
                 {"audio_config", nullptr},
                 {"eoa_token_index", 258883},
                 {"image_token_id", 258880},
                 {"text_config", text},
                 {"tie_word_embeddings", true},
                 {"vision_config", {{"hidden_size", 1152}}},
                 {"vision_soft_tokens_per_image", 280}};
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, "gemma4_text");
  EXPECT_TRUE(spec->tied_embeddings);
  EXPECT_EQ(spec->WindowOf(LayerId(4)), 1024);
  EXPECT_EQ(spec->WindowOf(LayerId(5)), 0) << "every sixth sees all";
  EXPECT_EQ(spec->HeadsOf(LayerId(29)), (HeadShape{2, 512, true}));
  EXPECT_EQ(spec->rotated_pairs, 64);
  EXPECT_EQ(spec->logits_cap, 30);
  config["text_config"]["model_type"] = "gemma3_text";
  ExpectRefusal(Read(config).status(), "model_type", "gemma3_text");
}

TEST(FamilyTest, LayersWithoutExpertsFollowTheirTypes) {
  Json config = ConfigOf("mellum");
  EXPECT_EQ(Read(config)->moe, (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(Read(config)->dense_ffn, 26);
  config.erase("mlp_layer_types");
  EXPECT_EQ(Read(config)->moe, std::vector<bool>(4, true));
  config["mlp_layer_types"] = {"sparse", "dense", "none", "sparse"};
  ExpectRefusal(Read(config).status(), "mlp_layer_types", "dense, sparse");
  config.erase("mlp_layer_types");
  config["num_nextn_predict_layers"] = 1;
  EXPECT_TRUE(Read(config).ok()) << "they predict further tokens";
  const std::string expected = SpecToJson(*Read(config));
  config["use_sliding_window"] = true;  // as released; layer_types say which do
  EXPECT_EQ(SpecToJson(*Read(config)), expected);
}

TEST(FamilyTest, Qwen3CoderIsReadAsReleased) {
  Json config = Json::parse(R"({
    "architectures": ["Qwen3MoeForCausalLM"], "attention_dropout": 0.0, "decoder_sparse_step": 1, "eos_token_id": 151645,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5472,
    "max_position_embeddings": 262144, "max_window_layers": 28, "mlp_only_layers": [], "model_type": "qwen3_moe",
    "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
    "qkv_bias": false, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000000, "router_aux_loss_coef": 0.0,
    "shared_expert_intermediate_size": 0, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.52.3", "use_cache": true, "use_qk_norm": true, "use_sliding_window": false,
    "vocab_size": 151936})");
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->qk_norm == ModelSpec::QkNorm::kPerHead && !spec->qkv_bias && spec->shared_ffn == 0);
  const std::map<std::string, Json> others = {
      {"qkv_bias", true}, {"use_qk_norm", false}, {"shared_expert_intermediate_size", 64}};
  for (const auto& [key, value] : others) {
    Json other = config;
    other[key] = value;
    ExpectRefusal(Read(other).status(), key, value.dump());
  }
}

TEST(FamilyTest, WindowsFollowLayerTypes) {
  Json config = ConfigOf("gpt_oss");
  EXPECT_EQ(Read(config)->windows, (std::vector<int>{7, 0, 7, 0}));
  config.erase("layer_types");
  EXPECT_EQ(Read(config)->windows, (std::vector<int>{7, 0, 7, 0})) << "every other layer, the first one slides";
  config["layer_types"] = {"full_attention", "full_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(Read(config)->windows, (std::vector<int>{0, 0, 0, 7}));
  config["layer_types"] = std::vector<std::string>(4, "full_attention");
  EXPECT_TRUE(Read(config)->windows.empty());
  for (const Json& bad : {Json("full_attention"), Json({"full_attention"}), Json({1, 2, 3, 4}),
                          Json({"full_attention", "full_attention", "full_attention", "chunked_attention"})}) {
    config["layer_types"] = bad;
    ExpectRefusal(Read(config).status(), "layer_types", "sliding_attention");
  }
  config.erase("layer_types");
  config.erase("sliding_window");
  ExpectRefusal(Read(config).status(), "sliding_window", "missing");
}

TEST(FamilyTest, ErnieTiesItsEmbeddingsUnlessTheFileSaysOtherwise) {
  Json config = ConfigOf("ernie4_5_moe");
  config.erase("tie_word_embeddings");
  EXPECT_TRUE(Read(config)->tied_embeddings);
  config["tie_word_embeddings"] = false;
  config.update({{"auto_map", {{"AutoConfig", "configuration_ernie4_5_moe.Ernie4_5_MoeConfig"}}}, {"is_quantized", false}});
  EXPECT_FALSE(Read(config)->tied_embeddings);
}

// A13B's says much of models that see, of latent attention and of groups of experts, none of which it has.
TEST(FamilyTest, HunyuanIsReadAsReleased) {
  Json config = ConfigOf("hunyuan_v1_moe");
  const auto plain = Read(config);
  ASSERT_TRUE(plain.ok()) << plain.status();
  config.update({{"anyres_pooling_size", 2},
                 {"anyres_vit_max_image_size", nullptr},
                 {"vit_mapping_type", "resampler"},
                 {"vit_type", nullptr},
                 {"num_media_embeds", 257},
                 {"xdrope_section", nullptr},
                 {"use_mla", false},
                 {"q_lora_rank", nullptr},
                 {"group_limited_greedy", false},
                 {"n_group", false},
                 {"routed_scaling_factor", false},
                 {"use_rotary_pos_emb", true}});
  ASSERT_TRUE(Read(config).ok()) << Read(config).status();
  EXPECT_EQ(SpecToJson(*Read(config)), SpecToJson(*plain));
  config["model_type"] = "hunyuan";
  config["architectures"] = {"HunYuanMoEV1ForCausalLM"};
  EXPECT_EQ(SpecToJson(*Read(config)), SpecToJson(*plain)) << "as the quantised releases say it";
  config["architectures"] = {"HunYuanForCausalLM"};
  ExpectRefusal(Read(config).status(), "architectures", "HunYuanMoEV1ForCausalLM");
  config.erase("architectures");
  ExpectRefusal(Read(config).status(), "architectures", "");
  config = ConfigOf("hunyuan_v1_moe");
  config["routed_scaling_factor"] = 2.5;
  ExpectRefusal(Read(config).status(), "routed_scaling_factor", "2.5");
}

// Python writes a word that JSON does not have.
TEST(FamilyTest, InfinityIsReadAsPythonWritesIt) {
  const std::string text = ConfigOf("granitemoehybrid").dump(), infinity = R"({"__float__":"Infinity"})";
  const size_t at = text.find(infinity);
  ASSERT_NE(at, text.npos);
  const std::string published = std::string(text).replace(at, infinity.size(), "Infinity");
  const auto spec = ReadSpec(published);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(SpecToJson(*spec), SpecToJson(*ReadSpec(text)));
  const std::string named = std::string(published).replace(published.find("\"silu\""), 6, R"("\"Infinity")");
  ExpectRefusal(ReadSpec(named).status(), "hidden_act", "Infinity");
  ExpectRefusal(ReadSpec(std::string(published).replace(published.find("Infinity"), 1, "-I")).status(), "config.json", "");
}

// To transformers null is false, or a whole head, where absence is not.
TEST(FamilyTest, NullIsRefusedWhereItIsNotAbsence) {
  Json config = ConfigOf("glm4_moe");
  config.erase("norm_topk_prob");
  EXPECT_TRUE(Read(config).ok());
  config["norm_topk_prob"] = nullptr;
  ExpectRefusal(Read(config).status(), "norm_topk_prob", "null");
  config["norm_topk_prob"] = true;
  config["partial_rotary_factor"] = nullptr;
  ExpectRefusal(Read(config).status(), "partial_rotary_factor", "null");
}

TEST(FamilyTest, WhatMayOnlyBeAbsentIsRefusedWithNull) {
  Json config = ConfigOf("minimax_m2");
  config["sliding_window"] = 4096;
  ExpectRefusal(Read(config).status(), "sliding_window = 4096", "allowed: null");
}

// Keys of MiniMax-M2's first release that its later ones do not have.
TEST(FamilyTest, MiniMaxM2IsReadAsFirstReleased) {
  Json config = ConfigOf("minimax_m2");
  const auto expected = Read(config);
  ASSERT_TRUE(expected.ok()) << expected.status();
  config.update({{"attn_type_list", std::vector<int>(config["num_hidden_layers"].get<int>(), 1)},
                 {"layernorm_full_attention_beta", 1.0},
                 {"layernorm_linear_attention_beta", 1.0},
                 {"layernorm_mlp_beta", 1.0},
                 {"mlp_intermediate_size", 8192},
                 {"shared_intermediate_size", 0},
                 {"shared_moe_mode", "sigmoid"}});
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(SpecToJson(*spec), SpecToJson(*expected));
  config["layernorm_mlp_beta"] = 2.0;
  ExpectRefusal(Read(config).status(), "layernorm_mlp_beta", "2");
  config["layernorm_mlp_beta"] = 1.0;
  config["attn_type_list"][0] = 0;
  ExpectRefusal(Read(config).status(), "attn_type_list", "");
}

TEST(FamilyTest, SparsityFollowsStepAndList) {
  Json config = ConfigOf("qwen2_moe");
  config["num_hidden_layers"] = 6;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3};
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->moe, (std::vector<bool>{false, true, false, false, false, true}));
  EXPECT_EQ(spec->dense_ffn, config["intermediate_size"].get<int>());
  config["mlp_only_layers"] = {1, 3, 5};
  ExpectRefusal(Read(config).status(), "no layer has experts", "");
  config["mlp_only_layers"] = {6};
  ExpectRefusal(Read(config).status(), "mlp_only_layers", "6");
}

TEST(FamilyTest, HeadDimMayDifferOnlyWhereTheFamilyAllowsIt) {
  for (const Family& family : Families()) {
    Json config = ConfigOf(family.model_type);
    config["head_dim"] = 16;
    static const std::set<std::string_view> kFixed = {
        "qwen2_moe",   "olmoe",   "deepseek",      "granitemoe",          "granitemoehybrid", "deepseek_v2",
        "deepseek_v3", "kimi_k2", "glm4_moe_lite", "switch_transformers", "gptsan-japanese",  "granitemoeshared",
        "kimi_linear"};
    const bool allowed = !kFixed.contains(family.model_type);
    EXPECT_EQ(Read(config).ok(), allowed) << family.model_type;
    config["head_dim"] = 15;
    EXPECT_FALSE(Read(config).ok()) << "odd";
  }
}

}  // namespace own_keys
}  // namespace moed
