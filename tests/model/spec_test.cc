// The spec's JSON comes from a file: it may be anything.
#include "core/model/spec.h"

#include <gtest/gtest.h>

#include <random>

#include "core/base/status.h"
#include "core/model/spec_check.h"
#include "nlohmann/json.hpp"
#include "tests/model/good_spec.h"

namespace moed {
namespace {

using Json = nlohmann::json;

TEST(SpecTest, EveryFieldTravels) {
  const ModelSpec spec = GoodSpec();
  const auto read = SpecFromJson(SpecToJson(spec));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->family, spec.family);
  for (const SpecInteger& field : SpecIntegers()) EXPECT_EQ((*read).*field.member, spec.*field.member) << field.name;
  for (const SpecFlag& field : SpecFlags()) EXPECT_EQ((*read).*field.member, spec.*field.member) << field.name;
  EXPECT_EQ(read->rms_eps, spec.rms_eps);
  EXPECT_EQ(read->rope_theta, spec.rope_theta);
  EXPECT_EQ(read->qk_norm, spec.qk_norm);
  EXPECT_EQ(read->moe, spec.moe);
  EXPECT_EQ(read->bos, spec.bos);
  EXPECT_EQ(read->eos, spec.eos);
  EXPECT_EQ(read->MoeLayers(), (std::vector<LayerId>{LayerId(0), LayerId(2)}));
}

TEST(SpecTest, ChangedFieldsAreDataLoss) {
  const std::string text = SpecToJson(GoodSpec());
  for (const SpecInteger& field : SpecIntegers()) {
    for (const Json& value : {Json(field.low - 1), Json(field.high + 1), Json(1e300), Json("1"), Json(nullptr), Json(2.5)}) {
      Json json = Json::parse(text);
      json[std::string(field.name)] = value;
      EXPECT_EQ(SpecFromJson(json.dump()).status().code(), absl::StatusCode::kDataLoss) << field.name << " = " << value;
    }
  }
  const std::pair<const char*, Json> others[] = {
      {"family", "gpt2"},    {"family", 3},          {"rms_eps", 0.0},      {"rms_eps", 7.0},   {"rope_theta", 0.5},
      {"rope_theta", 1e300}, {"qk_norm", "some"},    {"moe", {true}},       {"moe", {0, 0, 1}}, {"moe", {false, false, false}},
      {"bos", {1, 2}},       {"bos", {300}},         {"eos", {7, 2}},       {"eos", {2, 2}},    {"eos", {-1}},
      {"kv_heads", 4},       {"head_dim", 7},        {"top_k", 6},          {"shared_ffn", 0},  {"dense_ffn", 0},
      {"unknown", 1},        {"tied_embeddings", 1}, {"eos", {1ull << 40}}, {"bos", {1e300}},   {"bos", 1},
  };
  for (const auto& [key, value] : others) {
    Json json = Json::parse(text);
    json[key] = value;
    EXPECT_EQ(SpecFromJson(json.dump()).status().code(), absl::StatusCode::kDataLoss) << key << " = " << value;
  }
}

// What copies or writes values calls itself for each array in another.
TEST(SpecTest, ADeepSpecIsDataLoss) {
  const std::string text = SpecToJson(GoodSpec()), deep = std::string(300'000, '[') + std::string(300'000, ']');
  for (const char* key : {"windows", "rotations", "more_heads", "more_rotations", "bos", "unknown"}) {
    const std::string with = StrCat(text.substr(0, text.size() - 1), ",\"", key, "\":", deep, "}");
    EXPECT_EQ(SpecFromJson(with).status().code(), absl::StatusCode::kDataLoss) << key;
  }
}

// Stores from before an option existed stay the same bytes.
TEST(SpecTest, WhatIsAbsentIsOffAndNotWritten) {
  const Json written = Json::parse(SpecToJson(GoodSpec()));
  for (const SpecFlag& field : SpecFlags()) {
    const std::string name(field.name);
    if (!field.optional) continue;
    EXPECT_FALSE(written.contains(name)) << name;
    ModelSpec on = GoodSpec();
    on.*field.member = true;
    const auto read = SpecFromJson(SpecToJson(on));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE((*read).*field.member) << name;
    Json json = written;
    json[name] = false;
    EXPECT_EQ(SpecFromJson(json.dump()).status().code(), absl::StatusCode::kDataLoss) << name;
  }
  for (const SpecInteger& field : SpecIntegers()) {
    if (!field.absent) continue;
    EXPECT_FALSE(written.contains(std::string(field.name))) << field.name;
  }
}

TEST(SpecTest, OptionalNumbersTravelWithinTheirRanges) {
  for (const SpecNumber& field : SpecNumbers()) {
    const std::string name(field.name);
    EXPECT_FALSE(Json::parse(SpecToJson(GoodSpec())).contains(name)) << name;
    ModelSpec spec = GoodSpec();
    spec.*field.member = field.high;
    const auto read = SpecFromJson(SpecToJson(spec));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ((*read).*field.member, field.high) << name;
    for (const Json& value : {Json(field.absent), Json(field.high * 2), Json(field.low - 1), Json("1"), Json(nullptr)}) {
      Json json = Json::parse(SpecToJson(spec));
      json[name] = value;
      EXPECT_EQ(SpecFromJson(json.dump()).status().code(), absl::StatusCode::kDataLoss) << name << " = " << value;
    }
  }
}

TEST(SpecTest, RecurrentLayersTravelWithTheirShape) {
  const auto refused = [](auto change) {
    ModelSpec spec = GoodSpec();
    spec.delta_net = {.key_heads = 2, .value_heads = 6, .key_dim = 5, .value_dim = 7, .taps = 4};
    spec.recurrent = {true, false, true};
    change(spec);
    if (!CheckSpec(spec).ok()) return true;
    const auto read = SpecFromJson(SpecToJson(spec));
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->delta_net, spec.delta_net);
    EXPECT_EQ(read->recurrent, spec.recurrent);
    EXPECT_EQ(read->StateBytes(LayerId(0)), sizeof(float) * (3 * 62 + 6 + 5 * 6 * 7)) << "(taps - 1) rows, padded; the heads";
    EXPECT_EQ(read->StateBytes(LayerId(1)), 0u);
    return false;
  };
  EXPECT_FALSE(refused([](ModelSpec&) {}));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.delta_net->value_heads = 5; })) << "no multiple of the key heads";
  EXPECT_FALSE(refused([](ModelSpec& s) { s.delta_net->gate_rank = 3; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.delta_net->gate_rank = -1; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.delta_net->key_dim = 0; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.delta_net->taps = 1; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.delta_net->taps = 17; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.delta_net.reset(); }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.recurrent.clear(); }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.recurrent = {true, false}; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.recurrent = {true, true, true}; })) << "no layer has attention";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.recurrent = {false, false, false}; }));
  ModelSpec spec = GoodSpec();
  EXPECT_EQ(spec.StateBytes(LayerId(0)), 0u);
}

TEST(SpecTest, LayersThatAreOneBlockTravel) {
  const auto refused = [](auto change) {
    ModelSpec spec = GoodSpec();
    spec.mixers = {false, true, false};
    spec.dense_ffn = 0;
    spec.activation = Activation::kSquaredRelu;
    change(spec);
    if (!CheckSpec(spec).ok()) return true;
    const auto read = SpecFromJson(SpecToJson(spec));
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->mixers, spec.mixers);
    EXPECT_FALSE(read->gated());
    for (int layer = 0; layer < 3; ++layer) {
      EXPECT_EQ(read->HasAttention(LayerId(layer)), layer == 1);
      EXPECT_NE(read->HasFfn(LayerId(layer)), read->HasMixer(LayerId(layer)));
    }
    return false;
  };
  EXPECT_FALSE(refused([](ModelSpec&) {}));
  EXPECT_FALSE(refused([](ModelSpec& s) { s.moe[0] = false, s.dense_ffn = 24; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.dense_ffn = 24; })) << "no layer is dense";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.mixers = {true, true, false}; })) << "a mixer with experts";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.mixers = {false, true}; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.norms = ModelSpec::Norms::kAround; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.expert_bias = true; })) << "of gates";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.swiglu_limits = {.alpha = 1, .limit = 1}; }));
  const auto recurrent = [&](std::vector<bool> layers) {
    return refused([&](ModelSpec& s) {
      s.short_convolution = {.taps = 3};
      s.recurrent = std::move(layers);
      s.layers = 4, s.moe.push_back(false), s.mixers.push_back(true);
    });
  };
  EXPECT_FALSE(recurrent({false, false, false, true}));
  EXPECT_TRUE(recurrent({true, false, false, true})) << "a feed-forward block";
  EXPECT_TRUE(recurrent({false, true, false, true})) << "no layer has attention";
}

TEST(SpecTest, AnEncoderTravels) {
  const auto refused = [](auto change) {
    ModelSpec spec = GoodSpec();
    spec.family = "switch_transformers";
    spec.kv_heads = 6, spec.qkv_bias = false, spec.unrotated = true, spec.top_k = 1, spec.shared_ffn = 0,
    spec.shared_gate = false;
    spec.encoder = EncoderShape{.layers = 1, .position_buckets = 8, .most_distance = 20, .expert_capacity = 3, .start = 4};
    change(spec);
    if (!CheckSpec(spec).ok()) return true;
    const auto read = SpecFromJson(SpecToJson(spec));
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->encoder, spec.encoder);
    EXPECT_TRUE(read->IsEncoder(LayerId(0)) && !read->KeepsKeys(LayerId(0)));
    EXPECT_TRUE(!read->IsEncoder(LayerId(1)) && read->KeepsKeys(LayerId(1)));
    return false;
  };
  EXPECT_FALSE(refused([](ModelSpec&) {}));
  EXPECT_FALSE(refused([](ModelSpec& s) { s.encoder->expert_capacity = 0; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.encoder->expert_capacity = -1; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.encoder->layers = 0; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.encoder->layers = 3; })) << "no layer is the decoder's";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.encoder->position_buckets = 3; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.encoder->most_distance = 4; })) << "not beyond the buckets of one distance";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.encoder->start = s.vocabulary; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.top_k = 2; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.kv_heads = 2; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.unrotated = false; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.windows = {0, 0, 9}; }));
}

TEST(SpecTest, EveryKindOfRecurrenceTravels) {
  ModelSpec spec = GoodSpec();
  spec.recurrent = {true, false, true};
  spec.unrotated = true;
  spec.short_convolution = {.taps = 3};
  const auto expect_travels = [](const ModelSpec& spec, uint64_t floats) {
    const auto read = SpecFromJson(SpecToJson(spec));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->mamba2, spec.mamba2);
    EXPECT_EQ(read->short_convolution, spec.short_convolution);
    EXPECT_TRUE(read->unrotated);
    EXPECT_EQ(read->StateBytes(LayerId(0)), sizeof(float) * floats);
  };
  expect_travels(spec, 2 * 48);
  const auto refused = [](ModelSpec spec, auto change) {
    change(spec);
    return !CheckSpec(spec).ok();
  };
  EXPECT_TRUE(refused(spec, [](ModelSpec& s) { s.short_convolution->taps = 1; }));
  EXPECT_TRUE(refused(spec, [](ModelSpec& s) { s.recurrent.clear(); }));
  const Mamba2Shape mamba2 = {.heads = 6, .head_dim = 5, .groups = 3, .state_dim = 7, .taps = 4, .convolution_bias = true};
  EXPECT_TRUE(refused(spec, [&](ModelSpec& s) { s.mamba2 = mamba2; })) << "two kinds";
  spec.short_convolution.reset();
  EXPECT_TRUE(refused(spec, [](ModelSpec&) {})) << "no kind";
  spec.mamba2 = mamba2;
  expect_travels(spec, 3 * (30 + 2 * 21) + 8 + 6 * 5 * 7);
  for (int Mamba2Shape::*field :
       {&Mamba2Shape::heads, &Mamba2Shape::head_dim, &Mamba2Shape::groups, &Mamba2Shape::state_dim, &Mamba2Shape::taps}) {
    EXPECT_TRUE(refused(spec, [&](ModelSpec& s) { (*s.mamba2).*field = 0; }));
    EXPECT_TRUE(refused(spec, [&](ModelSpec& s) { (*s.mamba2).*field = 1025; }));
  }
  EXPECT_TRUE(refused(spec, [](ModelSpec& s) { s.mamba2->groups = 4; })) << "no divisor of the heads";
}

TEST(SpecTest, RoutersMayReadWhatTheLayerReads) {
  ModelSpec spec = GoodSpec();
  spec.router_input = ModelSpec::RouterInput::kLayer;
  EXPECT_FALSE(CheckSpec(spec).ok()) << "a gate of the shared expert";
  spec.shared_gate = false;
  EXPECT_TRUE(SpecFromJson(SpecToJson(spec))->RoutesEarly());
  EXPECT_FALSE(Json::parse(SpecToJson(GoodSpec())).contains("router_input"));
  EXPECT_FALSE(Json::parse(SpecToJson(GoodSpec())).contains("gate_kind"));
}

TEST(SpecTest, ActivationAndPlacesOfNormsTravel) {
  ModelSpec spec = GoodSpec();
  spec.activation = Activation::kGelu;
  EXPECT_EQ(SpecFromJson(SpecToJson(spec))->activation, Activation::kGelu);
  spec.activation = Activation::kGatedRelu;
  EXPECT_EQ(SpecFromJson(SpecToJson(spec))->activation, Activation::kGatedRelu);
  spec.swiglu_limits = {.alpha = 1, .limit = 1};
  EXPECT_FALSE(CheckSpec(spec).ok());
  spec = GoodSpec();
  spec.norms = ModelSpec::Norms::kAround;
  EXPECT_FALSE(CheckSpec(spec).ok()) << "a shared expert with a gate, a layer without experts";
  spec.shared_gate = false, spec.dense_ffn = 0, spec.moe = {true, true, true};
  EXPECT_EQ(SpecFromJson(SpecToJson(spec))->norms, ModelSpec::Norms::kAround);
  spec = GoodSpec();
  spec.norms = ModelSpec::Norms::kBoth;
  EXPECT_EQ(SpecFromJson(SpecToJson(spec))->norms, ModelSpec::Norms::kBoth);
  spec.layer_norm = true;
  EXPECT_FALSE(CheckSpec(spec).ok());
  spec.layer_norm = false, spec.mixers = {false, true, false}, spec.dense_ffn = 0;
  EXPECT_FALSE(CheckSpec(spec).ok());
}

TEST(SpecTest, RoutersThatCannotChooseAreRefused) {
  const auto refused = [](auto change) {
    ModelSpec spec = GoodSpec();
    spec.experts = 6;
    change(spec);
    return !CheckSpec(spec).ok();
  };
  EXPECT_FALSE(refused([](ModelSpec& s) { s.router_groups = 3; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.router_groups = 4; })) << "does not divide the experts";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.router_groups = 2, s.router_kept_groups = 3; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.router_groups = 6; })) << "one group holds less than top_k";
  EXPECT_TRUE(refused([](ModelSpec& s) { s.router_scoring = RouterScoring::kSparsemixer, s.router_correction = true; }));
  for (const RouterScoring scoring : {RouterScoring::kSoftmax, RouterScoring::kSigmoid, RouterScoring::kSparsemixer}) {
    ModelSpec spec = GoodSpec();
    spec.router_scoring = scoring;
    EXPECT_EQ(SpecFromJson(SpecToJson(spec))->router_scoring, scoring);
  }
}

TEST(SpecTest, NormsBehindAndParallelBlocksAreChecked) {
  const auto refused = [](auto change) {
    ModelSpec spec = GoodSpec();
    spec.shared_ffn = spec.dense_ffn = 0;
    spec.shared_gate = false;
    spec.moe = {true, true, true};
    change(spec);
    if (!CheckSpec(spec).ok()) return true;
    const auto read = SpecFromJson(SpecToJson(spec));
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->norms, spec.norms);
    EXPECT_EQ(read->parallel, spec.parallel);
    return false;
  };
  EXPECT_FALSE(refused([](ModelSpec& s) { s.norms = ModelSpec::Norms::kBehind; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.norms = ModelSpec::Norms::kBehind, s.shared_ffn = 8; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.norms = ModelSpec::Norms::kBehind, s.layer_norm = true; }));
  EXPECT_TRUE(refused([](ModelSpec& s) { s.norms = ModelSpec::Norms::kBehind, s.parallel = true; }));
  EXPECT_FALSE(refused([](ModelSpec& s) { s.parallel = s.layer_norm = true; }));
}

TEST(SpecTest, OtherTextIsDataLoss) {
  const std::string text = SpecToJson(GoodSpec());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_EQ(SpecFromJson(text.substr(0, length)).status().code(), absl::StatusCode::kDataLoss) << length;
  }
  for (const std::string& other : {text + " ", " " + text, text + text, std::string("null"), std::string("[]"), std::string("{}"),
                                   std::string(100000, '['), std::string(1000, '\0'), std::string("\xff\xfe\x80")}) {
    EXPECT_EQ(SpecFromJson(other).status().code(), absl::StatusCode::kDataLoss) << other.substr(0, 40);
  }
}

// A changed byte gives an error or another valid spec, never anything else.
TEST(SpecTest, FlippedBytesNeverGiveAnInvalidSpec) {
  const std::string text = SpecToJson(GoodSpec());
  std::mt19937_64 random(9);
  for (int round = 0; round < 20000; ++round) {
    std::string changed = text;
    for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) changed[random() % changed.size()] = static_cast<char>(random());
    const auto read = SpecFromJson(changed);
    if (read.ok()) {
      EXPECT_TRUE(CheckSpec(*read).ok());
      EXPECT_EQ(SpecToJson(*read), changed);
    } else {
      EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
    }
  }
}

}  // namespace
}  // namespace moed
