// config.json to ModelSpec: whatever changes what a model computes is understood or refused by name.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/base/status.h"
#include "core/model/expert_shapes.h"
#include "core/model/family.h"
#include "core/model/spec_check.h"
#include "nlohmann/json.hpp"
#include "tests/base/damaged_json.h"
#include "tests/model/config_reading.h"

namespace moed {
namespace {

using Json = nlohmann::json;

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
      {"ernie4_5_moe", {{"auto_map"}, "moe_k", "moe_num_experts"}},
      {"ernie4_5_moe_vl", {{"auto_map"}, "moe_k", "moe_num_experts"}},
      {"ernie4_5_vl_moe_text", {{"auto_map"}, "moe_k", "moe_num_experts"}},
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
      {"mellum", {.computed = {"use_sliding_window"}, .rotations = true}},
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
  EXPECT_TRUE(Read(With("unsloth_version", "2026.4.5")).ok());
  EXPECT_TRUE(Read(With("pretraining_tp", 1)).ok()) << "parts that a product was once computed in";
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
