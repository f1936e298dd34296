// Exact mode: logits and greedy tokens are the same bits whatever the policy, predictor, capacity, I/O backend, compute backend,
// thread count, prompt chunking and batch composition. Every table is iterated, so a new row is tested the day it is added.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/presets/preset.h"
#include "tests/system/demo_rig.h"

namespace moed::testing {
namespace {

constexpr int kNewTokens = 6;

const std::vector<std::vector<TokenId>>& Prompts() {
  static const std::vector<std::vector<TokenId>> prompts = {Tokens({0, 1205, 310, 77, 912, 3001, 15, 268, 9, 2047, 640, 88}),
                                                            Tokens({0, 55}), Tokens({0, 700, 701, 702, 703, 90, 12})};
  return prompts;
}

// A JSON file that names the store's model; `rest(layers, experts)`: its other members.
std::string WriteForStore(const std::string& store_path, const std::string& name,
                          const std::function<std::string(int, int)>& rest) {
  const auto store = StoreReader::Open(store_path);
  MOED_CHECK(store.ok());
  const StoreDescription& description = (*store)->description();
  const std::string path = StrCat(::testing::TempDir(), "/exact-mode-", name, "-", static_cast<int>(getpid()), ".json");
  char hash[17];
  std::snprintf(hash, sizeof(hash), "%016llx", static_cast<unsigned long long>((*store)->model_hash()));
  std::ofstream(path) << "{\"model_hash\":\"" << hash << "\","
                      << rest(static_cast<int>(description.moe_layers.size()), description.experts_per_layer) << "}";
  return path;
}

std::string Repeated(int count, const std::function<std::string(int)>& item) {
  std::string list;
  for (int i = 0; i < count; ++i) list += StrCat(i == 0 ? "" : ",", item(i));
  return "[" + list + "]";
}

// Every second expert of every layer at the last precision.
std::string AlternatingWidths(const std::string& store_path) {
  return WriteForStore(store_path, "widths", [](int layers, int experts) {
    const auto layer = [=](int) { return Repeated(experts, [](int expert) { return StrCat(expert % 2); }); };
    return StrCat("\"precisions\":", Repeated(layers, layer));
  });
}

// Four slots a layer; norms that rise with the expert.
std::string FourSlots(const std::string& store_path) {
  return WriteForStore(store_path, "slots", [](int layers, int experts) {
    const auto norms = [=](int) { return Repeated(experts, [](int expert) { return StrCat(expert + 1); }); };
    return StrCat("\"slots\":", Repeated(layers, [](int) { return "4"; }), ",\"norms\":", Repeated(layers, norms));
  });
}

struct Expected {
  std::vector<TokenId> tokens;
  std::vector<float> logits;
};

// The definition: scalar arithmetic, one token at a time, every expert resident.
const Expected& Definition(size_t prompt) {
  static const std::vector<Expected> all = [] {
    RigOptions options;
    options.compute = "scalar";
    options.slots = 256;
    Rig rig(options);
    std::vector<Expected> expected;
    for (const auto& p : Prompts()) {
      Expected e;
      e.tokens = rig.Greedy(p, kNewTokens, 1, &e.logits);
      expected.push_back(std::move(e));
    }
    return expected;
  }();
  return all[prompt];
}

void ExpectSameBits(Rig& rig, int chunk, const std::string& what) {
  for (size_t i = 0; i < Prompts().size(); ++i) {
    std::vector<float> logits;
    EXPECT_EQ(rig.Greedy(Prompts()[i], kNewTokens, chunk, &logits), Definition(i).tokens) << what << ", prompt " << i;
    const auto& expected = Definition(i).logits;
    ASSERT_EQ(logits.size(), expected.size()) << what;
    EXPECT_EQ(std::memcmp(logits.data(), expected.data(), logits.size() * sizeof(float)), 0) << what << ", prompt " << i;
  }
}

void ExpectSameBitsAtEveryCapacity(RigOptions options) {
  for (const int slots : {1, 2, 3, 5, 64, 256}) {
    options.slots = slots;
    Rig rig(options);
    ExpectSameBits(rig, 5, StrCat(options.policy, " x ", options.predictor, " x ", slots, " slots"));
  }
}

TEST(ExactMode, EveryPolicyAndCapacity) {
  for (const PolicyRow& policy : Policies()) {
    if (!policy.mask.empty()) continue;  // only with its mask: EveryPresetServesAnExactRequest
    RigOptions options;
    options.policy = policy.name;
    options.predictor = "learned";
    ExpectSameBitsAtEveryCapacity(options);
  }
}

TEST(ExactMode, EveryPredictorAndCapacity) {
  for (const PredictorRow& predictor : Predictors()) {
    if (!predictor.mask.empty()) continue;  // only with its mask: EveryPresetServesAnExactRequest
    RigOptions options;
    options.predictor = predictor.name;
    ExpectSameBitsAtEveryCapacity(options);
  }
}

// Prompts are computed in borrowed memory, answers are not: what lies in the cache's end goes and comes.
TEST(ExactMode, EveryPolicyThatLends) {
  for (const PolicyRow& policy : Policies()) {
    if (!policy.mask.empty()) continue;  // only with its mask: EveryPresetServesAnExactRequest
    RigOptions options;
    options.policy = policy.name;
    options.predictor = "learned";
    options.own_step_tokens = 2;
    ExpectSameBitsAtEveryCapacity(options);
  }
}

// Between steps the cache shrinks and grows at random, and experts are pinned, asked for and let go.
void OperateAtRandom(Rig& rig, std::mt19937_64& random, uint64_t least, uint64_t most) {
  CachingProvider& provider = rig.provider();
  const int layers = rig.model().spec().layers, experts = rig.model().spec().experts;
  const CachedKey key{LayerId(static_cast<int32_t>(random() % static_cast<uint64_t>(layers))),
                      static_cast<int32_t>(random() % static_cast<uint64_t>(experts)), kReferencePrecision};
  if (random() % 2 == 0) provider.Resize(least + random() % (most - least + 1)).IgnoreError();
  if (random() % 4 == 0) provider.Pin({&key, 1}).IgnoreError();
  if (random() % 4 == 0) provider.Prefetch({&key, 1});
  if (random() % 8 == 0) provider.UnpinAll();
}

TEST(ExactMode, EveryPolicyAndPredictorWhileTheCacheIsResized) {
  std::mt19937_64 random(17);
  std::vector<std::pair<std::string, std::string>> parts;
  for (const PolicyRow& policy : Policies()) {
    if (policy.mask.empty()) parts.emplace_back(policy.name, "learned");  // with its mask it keeps its size
  }
  for (const PredictorRow& predictor : Predictors()) {
    if (predictor.mask.empty()) parts.emplace_back("lru", predictor.name);
  }
  for (const auto& [policy, predictor] : parts) {
    RigOptions options;
    options.policy = policy;
    options.predictor = predictor;
    options.own_step_tokens = 2;
    options.slots = 24;
    options.most_slots = 96;
    Rig rig(options);
    const uint64_t slots = rig.provider().Stats().cache_capacity_bytes;
    const uint64_t record = rig.record_bytes();
    int resized = 0;
    rig.before_step = [&] {
      const uint64_t before = rig.provider().Stats().cache_capacity_bytes;
      OperateAtRandom(rig, random, slots - 23 * record, slots + 72 * record);
      resized += rig.provider().Stats().cache_capacity_bytes != before ? 1 : 0;
    };
    ExpectSameBits(rig, 5, StrCat(policy, " x ", predictor, ", resized"));
    EXPECT_GT(resized, 3) << policy << " x " << predictor;
  }
}

TEST(ExactMode, EveryReadBackend) {
  std::string skipped;
  size_t served = 0;
  for (const ReadBackendRow& reads : ReadBackends()) {
    const absl::Status opens = OpenReadBackend(reads.name, DemoStorePath(RigOptions().expert_formats), {}).status();
    if (!opens.ok()) {
      skipped += StrCat(reads.name, ": ", opens.message(), "\n");
      continue;
    }
    ++served;
    for (const int slots : {1, 3, 64}) {
      RigOptions options;
      options.predictor = "cross-layer-gate";
      options.slots = slots;
      options.io_backend = reads.name;
      Rig rig(options);
      ExpectSameBits(rig, 5, StrCat(reads.name, " x ", slots, " slots"));
    }
  }
  ASSERT_GT(served, 0u) << skipped;
  if (!skipped.empty()) GTEST_SKIP() << "not on this machine: " << skipped;
}

TEST(ExactMode, EveryComputeBackendThreadCountAndChunk) {
  std::string skipped;
  size_t served = 0;
  for (const ComputeBackendRow& backend : ComputeBackends()) {
    if (!backend.supported()) {
      skipped += StrCat(backend.name, " ");
      continue;
    }
    ++served;
    for (const int threads : {1, 2, 3}) {
      for (const int chunk : {1, 3, 12}) {
        RigOptions options;
        options.compute = backend.name;
        options.threads = threads;
        Rig rig(options);
        ExpectSameBits(rig, chunk, StrCat(backend.name, " x ", threads, " threads x chunks of ", chunk));
      }
    }
  }
  ASSERT_GT(served, 0u) << skipped;
  RecordProperty("not_on_this_processor", skipped);
}

TEST(ExactMode, EveryBatchComposition) {
  std::vector<std::vector<TokenId>> batch;
  for (int copy = 0; copy < 3; ++copy) {
    for (const auto& prompt : Prompts()) batch.push_back(prompt);
    for (const int chunk : {1, 4}) {
      RigOptions options;
      options.slots = 3;
      options.predictor = "cross-layer-gate";
      Rig rig(options);
      const auto answers = rig.GreedyTogether(batch, kNewTokens, chunk);
      for (size_t i = 0; i < answers.size(); ++i) {
        EXPECT_EQ(answers[i], Definition(i % Prompts().size()).tokens)
            << batch.size() << " together, chunks of " << chunk << ", " << i;
      }
    }
  }
}

constexpr char kTwoPrecisions[] = "q8,q2";

RigOptions PresetOptions(const PresetRow& preset) {
  RigOptions options;
  options.expert_formats = kTwoPrecisions;
  options.preset = preset.name;
  options.slots = preset.cache == CacheKind::kOneToken ? 4 : preset.cache == CacheKind::kAll ? 256 : 40;
  if (preset.rule == "widths") options.preset_options = StrCat("widths=", AlternatingWidths(DemoStorePath(kTwoPrecisions)));
  if (preset.mask == "swapmoe") options.preset_options = StrCat("slots=", FourSlots(DemoStorePath(kTwoPrecisions)));
  return options;
}

TEST(ExactMode, EveryPresetServesAnExactRequest) {
  for (const PresetRow& preset : Presets()) {
    for (const bool fill : {false, true}) {
      if (fill && preset.mask != "none") continue;  // refused
      RigOptions options = PresetOptions(preset);
      options.fill = fill;
      Rig rig(options);
      ExpectSameBits(rig, 5, StrCat("preset ", preset.name, fill ? ", filled" : ""));
      EXPECT_EQ(rig.last_counters().gate_mass_lost, 0) << preset.name;
    }
  }
}

TEST(ExactMode, AnExactRequestBesideFastOnesUnderEveryPreset) {
  for (const PresetRow& preset : Presets()) {
    Rig rig(PresetOptions(preset));
    const auto answers = rig.GreedyTogether({Prompts()[0], Prompts()[1], Prompts()[2]}, kNewTokens, 4,
                                            {Fidelity::Fast(), Fidelity::Exact(), Fidelity::Fast()});
    EXPECT_EQ(answers[1], Definition(1).tokens) << preset.name;
    for (const auto& answer : answers) EXPECT_EQ(answer.size(), static_cast<size_t>(kNewTokens)) << preset.name;
  }
}

TEST(ExactMode, PresetsThatLoseSayWhatWasLost) {
  for (const PresetRow& preset : Presets()) {
    RigOptions options = PresetOptions(preset);
    options.fidelity = Fidelity::Fast();
    Rig rig(options);
    std::vector<float> logits;
    rig.Greedy(Prompts()[0], kNewTokens, 5, &logits);
    const bool same = logits.size() == Definition(0).logits.size() &&
                      std::memcmp(logits.data(), Definition(0).logits.data(), logits.size() * sizeof(float)) == 0;
    const SequenceCounters& lost = rig.last_counters();
    EXPECT_EQ(same, lost.lowered + lost.skipped + lost.masked == 0) << preset.name;
    EXPECT_EQ(same, lost.gate_mass_lost == 0) << preset.name;
    EXPECT_LE(lost.gate_mass_lost, static_cast<double>(lost.routed_tokens)) << preset.name;
    if (preset.rule == "exact" && preset.mask == "none") {
      EXPECT_TRUE(same) << preset.name;
    }
    if (preset.rule == "lowest") {
      EXPECT_DOUBLE_EQ(lost.gate_mass_lost, static_cast<double>(lost.routed_tokens));
    }
  }
}

TEST(ExactMode, ABoundIsKeptUnderEveryPreset) {
  constexpr float kBound = .1f;
  for (const PresetRow& preset : Presets()) {
    RigOptions options = PresetOptions(preset);
    options.fidelity = Fidelity::Bounded(kBound);
    Rig rig(options);
    rig.Greedy(Prompts()[0], kNewTokens, 5);
    const SequenceCounters& lost = rig.last_counters();
    EXPECT_LE(lost.gate_mass_lost, kBound * static_cast<double>(lost.routed_tokens)) << preset.name;
  }
}

TEST(ExactMode, ReferencePrecisionIsTheFirstWhateverElseIsStored) {
  RigOptions options;
  options.expert_formats = "q8,q4,q2";
  Rig rig(options);
  ExpectSameBits(rig, 5, "a store that holds lower precisions too");
}

}  // namespace
}  // namespace moed::testing
