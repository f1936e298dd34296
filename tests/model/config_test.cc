// config.json to ModelSpec: whatever changes what a model computes is understood or refused by name.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include "core/base/status.h"
#include "core/model/expert_shapes.h"
#include "core/model/family.h"
#include "core/model/spec_check.h"
#include "nlohmann/json.hpp"
#include "tests/base/damaged_json.h"
#include "tests/model/packed_model.h"

namespace moed {
namespace {

using Json = nlohmann::json;

absl::StatusOr<ModelSpec> ReadSpec(const std::string& text, const std::string& generation_config = "") {
  auto family = FamilyOf(text);
  if (!family.ok()) return family.status();
  return (*family)->read_spec(text, generation_config);
}
absl::StatusOr<ModelSpec> Read(const Json& config, const std::string& generation_config = "") {
  return ReadSpec(config.dump(), generation_config);
}

// Kimi K2 is DeepSeek-V3 under another name. Text parts are those of whole checkpoints.
Json ConfigOf(std::string_view family) {
  static const std::map<std::string_view, std::string> kWhole = {
      {"qwen3_vl_moe_text", "qwen3_vl_moe"}, {"qwen3_omni_moe_text", "qwen3_vl_moe"}, {"glm4v_moe_text", "glm4v_moe"}};
  if (const auto whole = kWhole.find(family); whole != kWhole.end()) {
    Json config = Json::parse(ReadText(DataFolder() + "/" + whole->second + "/config.json"))["text_config"];
    config["model_type"] = family;
    config["dtype"] = "bfloat16";
    return config;
  }
  if (family == "kimi_k2") {
    Json config = ConfigOf("deepseek_v3");
    config["model_type"] = family;
    return config;
  }
  std::string folder(family);
  std::ranges::replace(folder, '-', '_');
  return Json::parse(ReadText(DataFolder() + "/" + folder + "/config.json"));
}

void ExpectRefusal(const absl::Status& status, std::string_view named, std::string_view value) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(ToAbsl(named)), absl::string_view::npos) << status << "\nshould name " << named;
  EXPECT_NE(status.message().find(ToAbsl(value)), absl::string_view::npos) << status << "\nshould show " << value;
}

// What a family computes that the others refuse, and its own names of what all have.
struct OwnKeys {
  std::set<std::string> computed;
  std::string top_k = "num_experts_per_tok";
  std::string experts = "";  // a third name; empty: num_experts or num_local_experts
  std::string ffn = "intermediate_size";
  bool rotations = false;  // rope_parameters by type of layer
  std::string norm_eps = "rms_norm_eps";
  bool default_theta = false;   // rope_theta may be absent
  bool default_layers = false;  // num_hidden_layers may be absent
  std::string positions = "max_position_embeddings";
};
OwnKeys OwnKeysOf(const std::string& family) {
  const std::map<std::string, OwnKeys> keys = {
      {"glm4_moe",
       {{"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}, "num_experts_per_tok", "n_routed_experts"}},
      {"ernie4_5_moe", {{}, "moe_k", "moe_num_experts"}},
      {"minimax_m2", {{"partial_rotary_factor", "rope_parameters.partial_rotary_factor", "auto_map"}}},
      {"hunyuan_v1_moe", {{"auto_map"}, "moe_topk", "num_experts"}},
      {"deepseek", {{"auto_map"}, "num_experts_per_tok", "n_routed_experts"}},
      {"deepseek_v2", {{"auto_map"}, "num_experts_per_tok", "n_routed_experts"}},
      {"deepseek_v3", {{"auto_map"}, "num_experts_per_tok", "n_routed_experts"}},
      {"kimi_k2", {{"auto_map"}, "num_experts_per_tok", "n_routed_experts"}},
      {"glm4_moe_lite", {{}, "num_experts_per_tok", "n_routed_experts"}},
      {"granitemoe", {{"logits_scaling", "residual_multiplier"}}},
      {"phimoe", {{"auto_map"}}},
      {"qwen3_next", {{"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}}},
      {"qwen3_5_moe_text",
       {{"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}, "num_experts_per_tok", "", "moe_intermediate_size"}},
      {"mellum", {.rotations = true}},
      {"lfm2_moe", {.norm_eps = "norm_eps"}},
      {"granitemoehybrid", {{"logits_scaling", "residual_multiplier"}}},
      {"nemotron_h",
       {.computed = {"auto_map"},
        .experts = "n_routed_experts",
        .ffn = "moe_intermediate_size",
        .norm_eps = "layer_norm_epsilon",
        .default_theta = true,
        .default_layers = true}},
      {"minicpm", {.computed = {"auto_map"}, .default_theta = true}},
      {"laguna", {.computed = {"auto_map", "partial_rotary_factor"}, .rotations = true}},
      {"bailing_moe", {{"auto_map"}}},
      {"bailing_moe_v2", {{"partial_rotary_factor", "rope_parameters.partial_rotary_factor", "auto_map"}}},
      {"smallthinker",
       {{"auto_map", "hidden_act"}, "moe_num_active_primary_experts", "moe_num_primary_experts", "moe_ffn_hidden_size"}},
      {"gemma4_text", {{"final_logit_softcapping"}, "top_k_experts", "num_experts", "intermediate_size", true}},
      {"afmoe", {.computed = {"auto_map", "attention_bias"}, .experts = "num_experts"}},
      {"dots1", {.computed = {"auto_map", "attention_bias"}, .experts = "n_routed_experts"}},
      {"solar_open",
       {.computed = {"auto_map", "attention_bias"},
        .experts = "n_routed_experts",
        .ffn = "moe_intermediate_size",
        .default_theta = true}},
      {"sarvam_moe",
       {.computed = {"auto_map", "partial_rotary_factor", "rope_parameters.partial_rotary_factor"},
        .experts = "num_experts",
        .default_theta = true}},
      {"exaone_moe", {.computed = {"auto_map"}, .experts = "num_experts"}},
      {"granitemoeshared", {{"logits_scaling", "residual_multiplier"}}},
      {"mistral4", {{}, "num_experts_per_tok", "n_routed_experts"}},
      {"cohere2_moe", {.norm_eps = "layer_norm_eps"}},
      {"hy_v3", {.default_theta = true}},
      {"kimi_linear",
       {.computed = {"auto_map"}, .top_k = "num_experts_per_token", .default_theta = true, .positions = "model_max_length"}},
      {"qwen3_moe", {{"attention_bias"}}},
      {"glm4v_moe_text",
       {{"partial_rotary_factor", "rope_parameters.partial_rotary_factor"}, "num_experts_per_tok", "n_routed_experts"}},
  };
  const auto found = keys.find(family);
  return found == keys.end() ? OwnKeys{} : found->second;
}

class ConfigTest : public testing::TestWithParam<std::string> {
 protected:
  const Json good_ = ConfigOf(GetParam());
  const OwnKeys own_ = OwnKeysOf(GetParam());
  Json With(const std::string& key, const Json& value) const {
    Json config = good_;
    config[key] = value;
    return config;
  }
};

TEST_P(ConfigTest, IsReadAndTravelsAsJson) {
  const auto spec = Read(good_);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->family, GetParam());
  const std::string json = SpecToJson(*spec);
  const auto again = SpecFromJson(json);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(SpecToJson(*again), json);
}

TEST_P(ConfigTest, RefusesWhatNoFamilyComputes) {
  struct Refusal {
    std::string key;
    Json value;
  };
  const Refusal refusals[] = {
      {"hidden_act", "gelu"},
      {"hidden_act", "relu"},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"clip_qkv", 8.0},
      {"use_sliding_window", true},
      {"partial_rotary_factor", 0.5},
      {"rope_scaling", {{"type", "linear"}}},
      {"rope_scaling", {{"rope_type", "ntk"}, {"factor", 2.0}}},
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}},
      {"rope_scaling", {{"rope_type", "default"}, {"factor", 4.0}}},
      {"rope_scaling", "linear"},
      {"rope_parameters", {{"rope_type", "llama3"}, {"rope_theta", good_.value("rope_theta", 10000.0)}}},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 3.0}}},
      {"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}},
      {"quantization_config", {{"quant_method", "gptq"}}},
      {"layer_types", {"sliding_attention", "full_attention"}},
      {"is_encoder_decoder", true},
      {"pruned_heads", {{"0", {1}}}},
      {"logits_scaling", 6.0},
      {"final_logit_softcapping", 30.0},
      {"auto_map", {{"AutoModel", "modeling_other.Model"}}},
  };
  for (const Refusal& refusal : refusals) {
    if (refusal.key == "attention_bias" && good_.value("attention_bias", false)) continue;  // the family has it
    const bool partial = refusal.value.is_object() && refusal.value.contains("partial_rotary_factor");
    if (own_.computed.contains(partial ? refusal.key + ".partial_rotary_factor" : refusal.key)) continue;
    const absl::Status status = Read(With(refusal.key, refusal.value)).status();
    ExpectRefusal(status,
                  refusal.key == "rope_parameters" && refusal.value.contains("rope_theta") && refusal.value["rope_theta"] == 3.0
                      ? "rope_theta"
                      : refusal.key,
                  "");
  }
}

TEST_P(ConfigTest, RefusesNumbersOutOfRangeAndOtherTypes) {
  struct Range {
    std::string key;
    std::vector<Json> bad;
  };
  const Range ranges[] = {
      {"hidden_size", {0, -1, 1.5, "64", true, 1e30, 18446744073709551615ull, Json::array()}},
      {"num_hidden_layers", {0, -3, 5000, 1e9}},
      {"num_attention_heads", {0, -1, 100000}},
      {"num_key_value_heads", {0, 4, 1 << 20}},  // 4 divides none of the head counts
      {"vocab_size", {0, -261, 1 << 30}},
      {own_.positions, {0, 1 << 30}},
      {own_.norm_eps, {0, -1e-6, 2, "small"}},
      {"rope_theta", {0, -10000, "10000"}},
      {own_.top_k, {0, 100, -2}},
      {"tie_word_embeddings", {"yes", 1}},
      {"eos_token_id", {-1, 261, "2", {2, 1000}}},
      {"bos_token_id", {-1, 261, {1, 2}}},
  };
  for (const Range& range : ranges) {
    for (const Json& bad : range.bad) {
      const absl::Status status = Read(With(range.key, bad)).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << range.key << " = " << bad << ": " << status;
    }
  }
  ExpectRefusal(Read(With("hidden_size", -1)).status(), "hidden_size", "-1");
  ExpectRefusal(Read(With("vocab_size", "many")).status(), "vocab_size", "\"many\"");
}

TEST_P(ConfigTest, RefusesMissingKeys) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", own_.positions.c_str(),
                          own_.norm_eps.c_str(), "rope_theta", own_.top_k.c_str(), own_.ffn.c_str()}) {
    // In objects by type of layer, or not needed.
    if ((own_.rotations || own_.default_theta) && std::string_view(key) == "rope_theta") continue;
    if (own_.default_layers && std::string_view(key) == "num_hidden_layers") continue;
    Json config = good_;
    config.erase(key);
    ExpectRefusal(Read(config).status(), key, "missing");
  }
}

TEST_P(ConfigTest, RefusesUnknownKeysByName) {
  const std::string unknown = own_.computed.contains("residual_multiplier") ? "scale_depth" : "residual_multiplier";
  ExpectRefusal(Read(With(unknown, 0.22)).status(), unknown, "0.22");
  EXPECT_TRUE(Read(With("initializer_range", 0.5)).ok());
  EXPECT_TRUE(Read(With("transformers_version", "5.0.0")).ok());
  EXPECT_TRUE(Read(With("attention_dropout", 0.1)).ok()) << "dropout is for training";
}

// transformers 5 writes rope_parameters and dtype, and names the experts alike in all families.
TEST_P(ConfigTest, BothSpellingsGiveTheSameSpec) {
  const std::string expected = SpecToJson(*Read(good_));
  Json config = good_;
  if (!own_.rotations) {
    config["rope_parameters"] =
        good_.value("rope_scaling", Json()).is_object() ? good_["rope_scaling"] : Json{{"rope_type", "default"}};
    config["rope_parameters"]["rope_theta"] = config["rope_theta"];
    config.erase("rope_scaling");
    config.erase("rope_theta");
  }
  config["torch_dtype"] = config["dtype"];
  config.erase("dtype");
  if (!own_.experts.empty()) {
    const auto spec = Read(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(SpecToJson(*spec), expected);
    return;
  }
  const bool local = config.contains("num_local_experts");
  const std::string from = local ? "num_local_experts" : "num_experts";
  const std::string to = local ? "num_experts" : "num_local_experts";
  config[to] = config[from];
  EXPECT_TRUE(Read(config).ok()) << "both spellings, same number";
  config.erase(from);
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(SpecToJson(*spec), expected);
  config[from] = config[to].get<int>() + 1;
  ExpectRefusal(Read(config).status(), from, to);
}

TEST_P(ConfigTest, EosComesFromBothFiles) {
  const auto ids = [](const std::vector<TokenId>& tokens) {
    std::vector<int> values;
    for (TokenId token : tokens) values.push_back(token.value());
    return values;
  };
  EXPECT_EQ(ids(Read(good_)->eos), (std::vector<int>{2}));
  EXPECT_EQ(ids(Read(good_, R"({"eos_token_id": [7, 2, 5], "temperature": 0.7})")->eos), (std::vector<int>{2, 5, 7}));
  EXPECT_EQ(ids(Read(With("eos_token_id", {9, 3}), R"({"eos_token_id": 4})")->eos), (std::vector<int>{3, 4, 9}));
  EXPECT_EQ(ids(Read(With("eos_token_id", nullptr))->eos), (std::vector<int>{}));
  EXPECT_EQ(ids(Read(With("bos_token_id", nullptr), R"({"bos_token_id": 6})")->bos), (std::vector<int>{6}));
  ExpectRefusal(Read(good_, R"({"eos_token_id": 100000})").status(), "generation_config.json", "100000");
  ExpectRefusal(Read(good_, "[]").status(), "generation_config.json", "");
  ExpectRefusal(Read(good_, "{").status(), "generation_config.json", "");
}

// Those with the keys of decoders; Switch Transformers and GPTSAN have others.
std::vector<std::string> FamilyNames() {
  std::vector<std::string> names;
  for (const Family& family : Families()) {
    const bool other = family.model_type == "switch_transformers" || family.model_type == "gptsan-japanese";
    if (!other) names.emplace_back(family.model_type);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Families, ConfigTest, testing::ValuesIn(FamilyNames()), [](const auto& info) { return info.param; });

// The families read their keys by the same reader; none has more than this one.
TEST(FamilyTest, HostileValuesAreRefusedOrComputable) {
  ForEachHostileValue(ConfigOf("qwen2_moe").dump(), [](const std::string& text, const std::string& what) {
    if (const auto spec = ReadSpec(text); spec.ok()) {
      EXPECT_TRUE(CheckSpec(*spec).ok()) << what;
    }
  });
}

TEST(FamilyTest, UnknownTypesAreRefusedWithTheKnownOnes) {
  for (const Family& family : Families()) {
    ExpectRefusal(FamilyOf(R"({"model_type": "gpt_neox"})").status(), "gpt_neox", family.model_type);
  }
  ExpectRefusal(FamilyOf("{}").status(), "model_type", "missing");
  ExpectRefusal(FamilyOf(R"({"model_type": 3})").status(), "model_type", "3");
  ExpectRefusal(FamilyOf("not json").status(), "config.json", "");
  ExpectRefusal(FamilyOf("[1]").status(), "config.json", "object");
}

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

TEST(FamilyTest, RotationsFollowLayerTypes) {
  const Json good = ConfigOf("mellum");
  const ModelSpec spec = *Read(good);
  EXPECT_EQ(spec.windows, (std::vector<int>{9, 0, 9, 9}));
  EXPECT_EQ(spec.rotations, (std::vector<int>{1, 0, 1, 1}));
  EXPECT_EQ(spec.rope_theta, 500000);
  ASSERT_TRUE(spec.yarn);
  EXPECT_EQ(spec.yarn->factor, 4);
  EXPECT_EQ(spec.more_rotations, (std::vector<Rotation>{{10000, {}}}));

  Json config = good;
  config.erase("rope_parameters");
  EXPECT_EQ(Read(config)->rotation(0), (Rotation{500000, {}})) << "as transformers where nothing is said";
  EXPECT_EQ(Read(config)->rotation(1), (Rotation{10000, {}}));
  config = good;
  config["rope_parameters"]["sliding_attention"] = config["rope_parameters"]["full_attention"];
  EXPECT_TRUE(Read(config)->rotations.empty()) << "one for all layers";
  EXPECT_TRUE(Read(config)->yarn);
  config = good;
  config["layer_types"] = std::vector<std::string>(4, "sliding_attention");
  EXPECT_EQ(Read(config)->rotation(0), (Rotation{10000, {}}));
  EXPECT_TRUE(Read(config)->rotations.empty());
  config.erase("layer_types");
  EXPECT_EQ(Read(config)->rope_theta, 500000);
  EXPECT_TRUE(Read(config)->windows.empty());

  const auto refused = [&](const Json::json_pointer& at, const Json& value, std::string_view named) {
    Json changed = good;
    changed["rope_parameters"][at] = value;
    ExpectRefusal(Read(changed).status(), named, "");
  };
  refused("/chunked_attention"_json_pointer, {{"rope_theta", 1e4}}, "rope_parameters.chunked_attention");
  refused("/full_attention/rope_theta"_json_pointer, nullptr, "rope_parameters.full_attention.rope_theta");
  refused("/full_attention/factor"_json_pointer, "4", "rope_parameters.full_attention.factor");
  refused("/sliding_attention/rope_type"_json_pointer, "linear", "rope_parameters.sliding_attention.rope_type");
  refused("/sliding_attention/partial_rotary_factor"_json_pointer, 0.5, "partial_rotary_factor");
  refused("/sliding_attention/rope_theta"_json_pointer, 0.5, "rope_theta");
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

// transformers would take numbers that the file does not say.
TEST(FamilyTest, GptOssSaysHowItsRotationsAreScaled) {
  const Json config = ConfigOf("gpt_oss");
  for (const bool null : {false, true}) {
    Json without = config;
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      without.erase(key);
      if (null) without[key] = nullptr;
    }
    without["rope_theta"] = 150000;
    ExpectRefusal(Read(without).status(), "rope_scaling", "missing");
    without["rope_scaling"] = {{"rope_type", "default"}};
    const auto plain = Read(without);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_FALSE(plain->yarn);
  }
}

TEST(FamilyTest, ErnieTiesItsEmbeddingsUnlessTheFileSaysOtherwise) {
  Json config = ConfigOf("ernie4_5_moe");
  config.erase("tie_word_embeddings");
  EXPECT_TRUE(Read(config)->tied_embeddings);
  config["tie_word_embeddings"] = false;
  EXPECT_FALSE(Read(config)->tied_embeddings);
}

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

// Any family may be scaled so; attention factors as the paper and DeepSeek give them.
TEST(FamilyTest, YarnIsReadWithItsAttentionFactor) {
  Json config = ConfigOf("qwen3_moe");
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 32}};
  const auto factor_with = [&](const Json& more) {
    config["rope_scaling"] = yarn;
    config["rope_scaling"].update(more);
    const auto spec = Read(config);
    return spec.ok() && spec->yarn ? spec->yarn->attention_factor : 0;
  };
  EXPECT_DOUBLE_EQ(factor_with(Json::object()), 0.1 * std::log(8.0) + 1);
  EXPECT_DOUBLE_EQ(factor_with({{"attention_factor", 1.5}, {"mscale", 2.0}}), 1.5);
  EXPECT_DOUBLE_EQ(factor_with({{"mscale", 2.0}, {"mscale_all_dim", 2.0}}), 1);
  for (const auto& [key, value] : {std::pair<const char*, Json>{"factor", 0.5},
                                   {"factor", "8"},
                                   {"beta_slow", 64.0},
                                   {"original_max_position_embeddings", 0},
                                   {"truncate", 1},
                                   {"ramp", 2}}) {
    config["rope_scaling"] = yarn;
    config["rope_scaling"][key] = value;
    ExpectRefusal(Read(config).status(), key, "");
  }
}

// As Qwen3.5's model card says it, with the sections of a picture beside it.
TEST(FamilyTest, YarnTurnsPartsOfHeads) {
  Json config = ConfigOf("qwen3_5_moe_text");
  config["rope_parameters"] = {{"mrope_interleaved", true},
                               {"mrope_section", {11, 11, 10}},
                               {"rope_type", "yarn"},
                               {"rope_theta", 1e7},
                               {"factor", 4.0},
                               {"original_max_position_embeddings", 64},
                               {"partial_rotary_factor", 0.4}};
  for (const char* key : {"rope_theta", "rope_scaling", "partial_rotary_factor"}) config.erase(key);
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rotary_dims, static_cast<int>(0.4 * spec->head_dim));
  EXPECT_DOUBLE_EQ(std::sqrt(spec->QueryPartFactor()), 0.1 * std::log(4.0) + 1);
  config = ConfigOf("glm4_moe");  // without a norm of queries
  config["use_qk_norm"] = false;
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  EXPECT_DOUBLE_EQ(Read(config)->RotationMagnitude(0), 0.1 * std::log(4.0) + 1);
}

TEST(FamilyTest, RopeScalingAndRopeParametersAreOfOneKind) {
  Json config = ConfigOf("qwen3_moe");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", config["rope_theta"]}};
  config["rope_scaling"] = {{"type", "default"}};
  EXPECT_TRUE(Read(config).ok());
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  ExpectRefusal(Read(config).status(), "rope_scaling is of type \"yarn\"", "rope_parameters of \"default\"");
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

TEST(FamilyTest, RotaryDimensionsOfMiniMaxAreSaidOnce) {
  Json config = ConfigOf("minimax_m2");
  const int dims = config["rotary_dim"], head = config["head_dim"];
  EXPECT_EQ(Read(config)->rotary_dims, dims);
  config["partial_rotary_factor"] = (dims + 0.5) / head;
  EXPECT_EQ(Read(config)->rotary_dims, dims) << "the same";
  config["partial_rotary_factor"] = 1.0;
  ExpectRefusal(Read(config).status(), "rotary_dim", "partial_rotary_factor = 1");
  config["rotary_dim"] = nullptr;
  EXPECT_EQ(Read(config)->rotary_dims, 0);
}

// Of any family. Phi-MoE's attention factors are its own keys'.
TEST(FamilyTest, LongRopeIsReadForShortAndLongContexts) {
  Json config = ConfigOf("qwen3_moe");
  const int pairs = config["head_dim"].get<int>() / 2;
  const std::vector<double> for_short(pairs, 1.5), for_long(pairs, 4.0);
  const Json scaling = {{"rope_type", "longrope"},
                        {"original_max_position_embeddings", 32},
                        {"short_factor", for_short},
                        {"long_factor", for_long}};
  config["rope_scaling"] = scaling;
  const auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->short_context, 32);
  EXPECT_EQ(spec->UsualContext(), 32);
  EXPECT_EQ(spec->rotation(0).divided->divisors, for_short);
  EXPECT_EQ(spec->rotation(1).divided->divisors, for_long);
  EXPECT_EQ(spec->rotation(1).theta, spec->rotation(0).theta);
  const double factor = std::sqrt(1 + std::log(160.0 / 32) / std::log(32.0));
  for (int i = 0; i < 2; ++i) EXPECT_DOUBLE_EQ(spec->rotation(i).AttentionFactor(), factor);
  config["rope_scaling"].update({{"factor", 1.0}});
  EXPECT_EQ(Read(config)->rotation(0).AttentionFactor(), 1);
  config["rope_scaling"].update({{"attention_factor", 1.25}});
  EXPECT_EQ(Read(config)->rotation(1).AttentionFactor(), 1.25);
  config["rope_scaling"]["original_max_position_embeddings"] = 160;
  EXPECT_EQ(Read(config)->short_context, 0) << "no context is longer";
  EXPECT_EQ(Read(config)->rotation_count(), 1);
  for (const auto& [key, value] : {std::pair<const char*, Json>{"original_max_position_embeddings", 161},
                                   {"original_max_position_embeddings", nullptr},
                                   {"short_factor", "1.5"},
                                   {"long_factor", nullptr},
                                   {"long_factor", {4.0, "4"}},
                                   {"attention_factor", "1"},
                                   {"short_mscale", 1.1},
                                   {"ramp", 2}}) {
    config["rope_scaling"] = scaling;
    config["rope_scaling"][key] = value;
    ExpectRefusal(Read(config).status(), key, "");
  }
  config["rope_scaling"] = scaling;
  config["rope_scaling"]["short_factor"].erase(0);
  ExpectRefusal(Read(config).status(), "divisors", StrCat(pairs - 1));
  Json latent = ConfigOf("deepseek_v2");
  latent["rope_scaling"] = scaling;
  EXPECT_FALSE(Read(latent).ok());

  const auto phi = Read(ConfigOf("phimoe_longrope"));
  ASSERT_TRUE(phi.ok()) << phi.status();
  EXPECT_EQ(phi->rotation(0).AttentionFactor(), 1.1);
  EXPECT_EQ(phi->rotation(1).AttentionFactor(), 1.3);
}

// As transformers 5.24 computes them; by the golden outputs of granitemoe, too.
TEST(FamilyTest, LinearAndLlama3DivideFrequencies) {
  Json config = ConfigOf("mixtral");
  config["head_dim"] = 20;
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.5}};
  auto spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rotation(0).divided, (FrequencyDivisors{std::vector<double>(10, 2.5)}));
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 200}};
  config["rope_scaling"] = llama3;
  spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const std::vector<double> divisors = spec->rotation(0).divided->divisors;
  EXPECT_EQ(divisors[1], 1);  // a turn takes 25 positions
  const double turns = 200 / (2 * std::numbers::pi * std::pow(1e6, 0.2)), stays = (turns - 1) / 3;
  EXPECT_DOUBLE_EQ(divisors[2], 1 / ((1 - stays) / 8 + stays));
  EXPECT_EQ(divisors[3], 8);
  for (const auto& [key, value] : {std::pair<const char*, Json>{"factor", 0.5},
                                   {"factor", nullptr},
                                   {"low_freq_factor", 4.5},
                                   {"high_freq_factor", "4"},
                                   {"original_max_position_embeddings", nullptr},
                                   {"beta_fast", 32}}) {
    config["rope_scaling"] = llama3;
    config["rope_scaling"][key] = value;
    ExpectRefusal(Read(config).status(), key, "");
  }
  config["rope_scaling"] = llama3;
  config["rope_scaling"]["high_freq_factor"] = 1.0;  // nothing lies between, as in Llama 4
  spec = Read(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->divided->divisors[2], 1);
  EXPECT_EQ(spec->divided->divisors[3], 8);
  config["rope_scaling"] = llama3;
  config["rope_parameters"] = llama3;
  EXPECT_TRUE(Read(config).ok()) << Read(config).status();
  config["rope_parameters"]["factor"] = 4.0;
  ExpectRefusal(Read(config).status(), "rope_scaling", "contradicts");
  Json latent = ConfigOf("deepseek_v2");
  latent["rope_scaling"] = llama3;
  ExpectRefusal(Read(latent).status(), "rope_scaling.rope_type", "llama3");
}

TEST(SwitchTransformersTest, IsReadAndTravelsAsJson) {
  for (const char* name : {"switch_transformers", "switch_transformers_untied"}) {
    const Json config = ConfigOf(name);
    const auto spec = Read(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(SpecFromJson(SpecToJson(*spec))->encoder, spec->encoder);
    EXPECT_EQ(spec->layers, config["num_layers"].get<int>() + config["num_decoder_layers"].get<int>());
    EXPECT_EQ(spec->encoder->expert_capacity, config["expert_capacity"].get<int>());
    EXPECT_EQ(spec->AttentionScale(), 1);
    EXPECT_EQ(spec->logits_scale == 1, !spec->tied_embeddings);
    EXPECT_FALSE(spec->gated());
  }
}

// As the reference derives it, which takes layer 1 where there is to be none.
TEST(SwitchTransformersTest, SparsityFollowsNumbersOrSteps) {
  Json config = ConfigOf("switch_transformers");
  EXPECT_EQ(Read(config)->moe, (std::vector<bool>{false, true, false, true, false, true, false}));
  config.erase("encoder_sparse_step");
  config.erase("decoder_sparse_step");
  EXPECT_EQ(Read(config)->moe, (std::vector<bool>{false, true, false, true, false, true, false}));
  config["num_sparse_encoder_layers"] = 4;
  config["num_sparse_decoder_layers"] = 0;
  EXPECT_EQ(Read(config)->moe, (std::vector<bool>{true, true, true, true, false, true, false}));
  config["num_sparse_encoder_layers"] = 5;
  ExpectRefusal(Read(config).status(), "num_sparse_encoder_layers", "5");
}

TEST(SwitchTransformersTest, TheDecodersBeginComesFromEitherFile) {
  Json config = ConfigOf("switch_transformers");
  EXPECT_EQ(Read(config, R"({"decoder_start_token_id": 7})")->encoder->start, 0);
  config.erase("decoder_start_token_id");
  EXPECT_EQ(Read(config, R"({"decoder_start_token_id": 7})")->encoder->start, 7);
  ExpectRefusal(Read(config).status(), "decoder_start_token_id", "missing");
  ExpectRefusal(Read(config, R"({"decoder_start_token_id": 1000})").status(), "decoder_start_token_id", "1000");
}

TEST(SwitchTransformersTest, WhatIsNotComputedIsRefusedByName) {
  const std::pair<const char*, Json> refusals[] = {{"dense_act_fn", "gelu_new"},
                                                   {"dense_act_fn", "gated-gelu"},
                                                   {"feed_forward_proj", "gated-gelu"},
                                                   {"is_gated_act", true},
                                                   {"router_dtype", "bfloat16"},
                                                   {"batch_prioritized_routing", true},
                                                   {"is_encoder_decoder", false},
                                                   {"d_model", 0},
                                                   {"d_kv", 7},
                                                   {"num_heads", 0},
                                                   {"num_layers", 0},
                                                   {"expert_capacity", -1},
                                                   {"relative_attention_num_buckets", 3},
                                                   {"relative_attention_max_distance", 5},
                                                   {"novelty", 1}};
  for (const auto& [key, value] : refusals) {
    Json config = ConfigOf("switch_transformers");
    config[key] = value;
    ExpectRefusal(Read(config).status(), std::string_view(key) == "d_kv" ? "head_dim" : key, value.dump());
  }
}

TEST(SwitchTransformersTest, HostileValuesAreRefusedOrComputable) {
  ForEachHostileValue(ConfigOf("switch_transformers").dump(), [](const std::string& text, const std::string& what) {
    if (const auto spec = ReadSpec(text); spec.ok()) {
      EXPECT_TRUE(CheckSpec(*spec).ok()) << what;
    }
  });
}

TEST(GptsanJapaneseTest, IsReadAndTravelsAsJson) {
  for (const char* name : {"gptsan_japanese", "gptsan_japanese_plain"}) {
    const Json config = ConfigOf(name);
    const auto spec = Read(config);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(SpecFromJson(SpecToJson(*spec))->prefix, spec->prefix);
    EXPECT_EQ(spec->layers, config["num_switch_layers"].get<int>() + config["num_ext_layers"].get<int>());
    EXPECT_EQ(spec->prefix->expert_capacity, config["expert_capacity"].get<int>());
    EXPECT_EQ(spec->prefix->separator, config["separator_token_id"].get<int>());
    EXPECT_EQ(spec->dense_ffn > 0, config["num_ext_layers"].get<int>() > 0);
  }
}

// The released config.json says what differs from these alone.
TEST(GptsanJapaneseTest, KeysThatAreAbsentAreThoseOfTheReleasedModel) {
  const auto spec = ReadSpec(R"({"model_type": "gptsan-japanese"})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->layers, 10);
  EXPECT_EQ(spec->experts, 16);
  EXPECT_EQ(spec->prefix, (PrefixShape{.separator = 35998, .expert_capacity = 128}));
}

TEST(GptsanJapaneseTest, WhatIsNotComputedIsRefusedByName) {
  const std::pair<const char*, Json> refusals[] = {{"router_dtype", "bfloat16"},
                                                   {"tie_word_embeddings", false},
                                                   {"is_encoder_decoder", true},
                                                   {"num_switch_layers", 0},
                                                   {"num_layers", 7},
                                                   {"expert_capacity", 0},
                                                   {"separator_token_id", 100000},
                                                   {"num_heads", 6},
                                                   {"d_ff", 0},
                                                   {"novelty", 1}};
  for (const auto& [key, value] : refusals) {
    Json config = ConfigOf("gptsan_japanese");
    config[key] = value;
    ExpectRefusal(Read(config).status(), std::string_view(key) == "num_heads" ? "heads" : key, value.dump());
  }
}

TEST(GptsanJapaneseTest, HostileValuesAreRefusedOrComputable) {
  ForEachHostileValue(ConfigOf("gptsan_japanese").dump(), [](const std::string& text, const std::string& what) {
    if (const auto spec = ReadSpec(text); spec.ok()) {
      EXPECT_TRUE(CheckSpec(*spec).ok()) << what;
    }
  });
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

TEST(FamilyTest, TensorNamesAreUnique) {
  for (const Family& family : Families()) {
    const ModelSpec spec = *Read(ConfigOf(family.model_type));
    std::map<std::string, int> stored, read;
    for (const TrunkTensor& tensor : family.trunk_tensors(spec)) {
      ++stored[tensor.store_name];
      if (tensor.head_factor.factor != 0) ++read[tensor.checkpoint_name];  // which makes zeros of a tensor's numbers
    }
    for (LayerId layer : spec.MoeLayers()) {
      for (int expert = 0; expert < spec.experts; ++expert) {
        for (const ExpertPart part : PartsOf(ExpertShapes(spec))) ++read[family.expert_tensor(layer, expert, part)];
      }
    }
    for (const auto& [name, count] : stored) EXPECT_EQ(count, 1) << name;
    for (const auto& [name, count] : read) EXPECT_EQ(count, 1) << name;
  }
}

}  // namespace
}  // namespace moed
