// What a specification says of attention: rotations, heads, windows, latent attention.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "core/model/spec.h"
#include "core/model/spec_check.h"
#include "nlohmann/json.hpp"
#include "tests/model/good_spec.h"

namespace moed {
namespace spec_attention {

using Json = nlohmann::json;

TEST(SpecTest, RotationsTravelAndAreAllUsed) {
  ModelSpec spec = GoodSpec();
  spec.more_rotations = {{.theta = 500}, {.theta = 3, .yarn = YarnScaling{.factor = 2, .original_positions = 7}}};
  spec.rotations = {2, 0, 1};
  const auto read = SpecFromJson(SpecToJson(spec));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->more_rotations, spec.more_rotations);
  EXPECT_EQ(read->rotations, spec.rotations);
  EXPECT_EQ(read->rotation(read->RotationOf(LayerId(0))), spec.more_rotations[1]);
  EXPECT_EQ(read->rotation(0), (Rotation{1e6, {}}));
  for (const std::vector<int>& bad : {std::vector<int>{}, {0, 1}, {0, 1, 1}, {0, 1, 3}, {-1, 1, 2}, {1, 2, 1}}) {
    ModelSpec changed = spec;
    changed.rotations = bad;
    EXPECT_FALSE(CheckSpec(changed).ok());
  }
  ModelSpec one = GoodSpec();
  one.rotations = {0, 0, 0};
  EXPECT_FALSE(CheckSpec(one).ok()) << "one for all layers is not written";
  spec.more_rotations[1].theta = 1;
  EXPECT_FALSE(CheckSpec(spec).ok());
}

TEST(SpecTest, LayersThatDoNotTurnTravelAndAreChecked) {
  const auto refused = [](auto change) {
    ModelSpec spec = GoodSpec();
    spec.unrotated_layers = {false, true, false};
    change(spec);
    if (!CheckSpec(spec).ok()) return true;
    const auto read = SpecFromJson(SpecToJson(spec));
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->unrotated_layers, spec.unrotated_layers);
    EXPECT_TRUE(read->Rotates(LayerId(0)));
    EXPECT_FALSE(read->Rotates(LayerId(1)));
    return false;
  };
  EXPECT_FALSE(refused([](ModelSpec&) {}));
  EXPECT_FALSE(refused([](ModelSpec& s) { s.yarn = {.factor = 4, .attention_factor = 1.5, .original_positions = 128}; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.unrotated = true; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.unrotated_layers = {true, true, true}; })) << "that is unrotated";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.unrotated_layers = {false, false, false}; })) << "none is not written";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.unrotated_layers = {false, true}; }));
  EXPECT_FALSE(refused([](ModelSpec& s) {
    s.yarn = {.factor = 4, .attention_factor = 1.5, .original_positions = 128};
    s.rotary_dims = 4, s.qk_norm = ModelSpec::QkNorm::kPerHead;
    EXPECT_EQ(s.QueryPartFactor(), 1) << "the norm of the queries would have the factor in all layers";
    EXPECT_EQ(s.RotationMagnitude(0), 1.5);
  }));
  EXPECT_FALSE(Json::parse(SpecToJson(GoodSpec())).contains("unrotated_layers"));
}

TEST(SpecTest, RotationsOfContextsTravelAndAreChecked) {
  const auto refused = [](auto change) {
    ModelSpec spec = GoodSpec();
    spec.divided = {.divisors = {1, 1.5, 2, 2.5}, .attention_factor = 1.1};
    spec.more_rotations = {{.theta = 1e6, .divided = FrequencyDivisors{{1, 4, 9, 16}, 1.2}}};
    spec.short_context = 128;
    change(spec);
    if (!CheckSpec(spec).ok()) return true;
    const auto read = SpecFromJson(SpecToJson(spec));
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->rotation(0), spec.rotation(0));
    EXPECT_EQ(read->more_rotations, spec.more_rotations);
    EXPECT_EQ(read->UsualContext(), std::min(128, spec.max_positions));
    EXPECT_EQ(read->rotation(1).AttentionFactor(), 1.2);
    return false;
  };
  EXPECT_FALSE(refused([](ModelSpec&) {}));
  EXPECT_FALSE(refused([](ModelSpec& s) { s.max_positions = 128; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.max_positions = 127; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.short_context = 0; })) << "no layer has the second rotation";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_rotations.clear(); }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.rotations = {0, 1, 0}; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.divided.reset(); }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_rotations[0].divided.reset(); }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.divided->divisors.pop_back(); }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.divided->divisors[1] = 0; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.divided->attention_factor = 0; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.yarn = {.factor = 4, .original_positions = 128}; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.rotated_pairs = 2; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.rotary_dims = 4; })) << "divisors of all dimensions";
  ModelSpec always = GoodSpec();
  always.divided = {.divisors = {1, 1.5, 2, 2.5}};
  EXPECT_TRUE(CheckSpec(always).ok());
  EXPECT_EQ(always.UsualContext(), always.max_positions);
}

TEST(SpecTest, KindsOfLayersTravelAndAreChecked) {
  const auto refused = [](auto change) {
    ModelSpec spec = GoodSpec();
    spec.qkv_bias = false;
    spec.value_norm = spec.values_are_keys = true;
    spec.rotated_pairs = 3;
    spec.more_rotations = {{.theta = 500, .pairs = 2}};
    spec.rotations = {1, 0, 1};
    spec.more_heads = {{.kv_heads = 3, .head_dim = 10}};
    change(spec);
    if (!CheckSpec(spec).ok()) return true;
    const auto read = SpecFromJson(SpecToJson(spec));
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->more_heads, spec.more_heads);
    EXPECT_EQ(read->more_rotations, spec.more_rotations);
    EXPECT_EQ(read->HeadsOf(LayerId(0)), spec.HeadsOf(1));
    EXPECT_EQ(read->HeadsOf(LayerId(1)), (HeadShape{2, 8, true}));
    return false;
  };
  EXPECT_FALSE(refused([](ModelSpec&) {}));
  EXPECT_FALSE(refused([](ModelSpec& s) { s.more_heads[0].values_are_keys = true; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_heads[0].kv_heads = 4; })) << "does not divide the heads";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_heads[0].kv_heads = 0; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_heads[0].head_dim = 9; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_heads[0].head_dim = 1 << 20; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_heads.push_back(s.more_heads[0]); }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_rotations[0].pairs = 6; })) << "more than there are";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.rotated_pairs = 5; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.rotary_dims = 4; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.value_norm = false; })) << "values would be keys as they are";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.qkv_bias = true; }));
}

TEST(SpecTest, KindsOfLayersMayTurnPartsAndHaveOtherHeads) {
  const auto refused = [](auto change) {
    ModelSpec spec = GoodSpec();
    spec.qkv_bias = false;
    spec.qk_norm = ModelSpec::QkNorm::kPerHead;
    spec.attention_gate = true;
    spec.gate_kind = ModelSpec::GateKind::kHeadSoftplus;
    spec.rotary_dims = 4;
    spec.yarn = {.factor = 4, .attention_factor = 1.5, .original_positions = 128};
    spec.more_rotations = {{.theta = 500, .rotary_dims = 8}};
    spec.rotations = {1, 0, 1};
    spec.more_heads = {{.kv_heads = 2, .head_dim = 8, .heads = 8}};
    change(spec);
    if (!CheckSpec(spec).ok()) return true;
    const auto read = SpecFromJson(SpecToJson(spec));
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->more_heads, spec.more_heads);
    EXPECT_EQ(read->more_rotations, spec.more_rotations);
    EXPECT_EQ(read->gate_kind, spec.gate_kind);
    return false;
  };
  EXPECT_FALSE(refused([](ModelSpec& s) {
    EXPECT_EQ(s.QueryHeads(s.HeadsOf(LayerId(0))), 8);
    EXPECT_EQ(s.QueryHeads(s.HeadsOf(LayerId(1))), 6);
    EXPECT_EQ(s.GateWidth(s.HeadsOf(LayerId(0))), 8);
    EXPECT_EQ(s.LargestQueryWidth(), 64);
    EXPECT_EQ(s.FirstFrequency(2), 2 + 4);
    EXPECT_EQ(s.QueryPartFactor(0), 2.25) << "of the layers that turn a part";
    EXPECT_EQ(s.QueryPartFactor(1), 1);
  }));
  EXPECT_FALSE(refused([](ModelSpec& s) { s.gate_kind = ModelSpec::GateKind::kSoftplus; }));
  EXPECT_FALSE(refused([](ModelSpec& s) { s.gate_kind = ModelSpec::GateKind::kSigmoid; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.attention_gate = false; })) << "a kind of nothing";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_heads[0].heads = 7; })) << "no multiple of the heads of keys";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_heads[0].heads = 2048; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_rotations[0].rotary_dims = 7; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.more_rotations[0].rotary_dims = 10; })) << "more than a head has";
  EXPECT_FALSE(refused([](ModelSpec& s) {
    s.qk_norm = ModelSpec::QkNorm::kNone;
    EXPECT_EQ(s.RotationMagnitude(0), 1.5) << "there is no norm that has the factor";
    EXPECT_EQ(s.RotationMagnitude(1), 1);
  }));
}

// Of the product of a query and a key; heads that do not turn are not multiplied either.
TEST(SpecTest, AnAttentionFactorMultipliesWhatTurns) {
  ModelSpec spec = GoodSpec();
  spec.yarn = {.factor = 4, .attention_factor = 1.5, .original_positions = 128};
  EXPECT_EQ(spec.ScoreFactor(0), 2.25);
  EXPECT_EQ(spec.QueryPartFactor(), 1);
  spec.rotary_dims = spec.head_dim / 2;
  EXPECT_EQ(spec.ScoreFactor(0), 1);
  EXPECT_EQ(spec.QueryPartFactor(), 1) << "there is no norm";
  EXPECT_EQ(spec.RotationMagnitude(0), 1.5);
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  EXPECT_EQ(spec.QueryPartFactor(), 2.25);
  EXPECT_EQ(spec.RotationMagnitude(0), 1);
  spec.more_rotations = {Rotation{1e4}};
  spec.short_context = 64;
  EXPECT_EQ(spec.QueryPartFactor(), 1) << "one norm for both";
  EXPECT_EQ(spec.RotationMagnitude(0), 1.5);
  EXPECT_EQ(spec.RotationMagnitude(1), 1);
  spec.more_rotations.clear(), spec.short_context = 0;
  spec.unrotated = true;
  EXPECT_EQ(spec.QueryPartFactor(), 1);
  spec.rotary_dims = 0;
  EXPECT_EQ(spec.ScoreFactor(0), 1);
  spec.unrotated = false;
  spec.qk_norm_after_rope = true;
  EXPECT_EQ(spec.ScoreFactor(0), 1) << "a norm follows";
  EXPECT_EQ(spec.RotationMagnitude(0), 1.5);
  EXPECT_EQ(CheckSpec(spec), absl::OkStatus());
}

TEST(SpecTest, AHeadHasItsNormBehindTheRotationAlone) {
  ModelSpec spec = GoodSpec();
  spec.qk_norm_after_rope = true;
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  EXPECT_EQ(CheckSpec(spec), absl::OkStatus());
  spec.qk_norm = ModelSpec::QkNorm::kWhole;
  EXPECT_TRUE(absl::IsInvalidArgument(CheckSpec(spec)));
}

ModelSpec LatentSpec() {
  ModelSpec spec = GoodSpec();
  spec.qkv_bias = false;
  spec.kv_heads = 1, spec.head_dim = 16, spec.rotary_dims = 6;
  spec.latent = {.q_rank = 12, .kv_rank = 24, .value_dim = 8};
  return spec;
}

TEST(SpecTest, LatentAttentionTravelsAndIsChecked) {
  EXPECT_EQ(SpecFromJson(SpecToJson(LatentSpec()))->latent, LatentSpec().latent);
  const auto refused = [](auto change) {
    ModelSpec spec = LatentSpec();
    change(spec);
    return !CheckSpec(spec).ok();
  };
  EXPECT_FALSE(refused([](ModelSpec& s) { s.latent->q_rank = 0; }));
  EXPECT_FALSE(refused([](ModelSpec& s) { s.yarn = {.factor = 4, .attention_factor = 1.5, .original_positions = 128}; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.latent->q_rank = -1; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.latent->kv_rank = 20; })) << "no multiple of 8";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.latent->kv_rank = 1024; })) << "no room for the rotated key";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.latent->value_dim = 4; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.latent->norm_eps = 0; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.rotary_dims = 0; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.kv_heads = 2; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.qkv_bias = true; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.windows = {1, 2, 3}; }));
  EXPECT_FALSE(refused([](ModelSpec& s) {
    s.unrotated = true;
    s.delta_net = {.key_heads = 2, .value_heads = 2, .key_dim = 5, .value_dim = 5, .taps = 4, .gate_rank = 5};
    s.recurrent = {true, false, true};
  }));
}

TEST(SpecTest, ChunksTemperaturesAndWeighedInputsTravelAndAreChecked) {
  const auto refused = [](auto change) {
    ModelSpec spec = GoodSpec();
    spec.windows = {16, 0, 16};
    spec.windows_are_chunks = true;
    spec.unrotated_layers = {false, true, false};
    spec.temperature = {.scale = 0.5, .positions = 64, .shift = 1, .of_unrotated = true};
    spec.qk_norm = ModelSpec::QkNorm::kUnit;
    spec.router_scoring = RouterScoring::kSigmoidOfChosen;
    spec.weighs_inputs = true;
    spec.top_k = 1;
    spec.shared_gate = false;
    change(spec);
    if (!CheckSpec(spec).ok()) return true;
    const auto read = SpecFromJson(SpecToJson(spec));
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(SpecToJson(*read), SpecToJson(spec));
    EXPECT_EQ(read->temperature, spec.temperature);
    return false;
  };
  EXPECT_FALSE(refused([](ModelSpec&) {}));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.windows.clear(); })) << "chunks of no window";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.top_k = 2; })) << "an input of two weights";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.expert_scales = true; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.temperature->positions = 0; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.temperature->scale = -1; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.temperature->shift = 2; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.qk_norm = ModelSpec::QkNorm::kPerHead; })) << "it would undo the temperature";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.rotary_dims = 4; })) << "a unit norm of a part";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.router_correction = true; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.yarn = {.factor = 4, .attention_factor = 1.5, .original_positions = 128}; }))
      << "the norm of what was rotated would undo the factor";
}

}  // namespace spec_attention
}  // namespace moed
