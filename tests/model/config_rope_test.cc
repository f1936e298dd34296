// How heads turn, as config.json says it: rotations of kinds of layers, YaRN, LongRoPE and other scaled frequencies.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "core/model/family.h"
#include "nlohmann/json.hpp"
#include "tests/model/config_reading.h"

namespace moed {
namespace config_rope {

using Json = nlohmann::json;

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

}  // namespace config_rope
}  // namespace moed
