// config.json of the families that see a prompt as a whole: Switch Transformers and GPTSAN-japanese.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/model/spec_check.h"
#include "nlohmann/json.hpp"
#include "tests/base/damaged_json.h"
#include "tests/model/config_reading.h"

namespace moed {
namespace config_whole_prompt {

using Json = nlohmann::json;

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

}  // namespace config_whole_prompt
}  // namespace moed
