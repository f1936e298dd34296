// Exact mode: logits and greedy tokens are the same bits whatever the policy, predictor, capacity, I/O backend, compute backend,
// thread count, prompt chunking and batch composition. Every table is iterated, so a new row is tested the day it is added.
// Formats of keys and values take turns.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/presets/preset.h"
#include "core/store/coding.h"
#include "tests/system/demo_rig.h"
#include "tests/system/passing_provider.h"
#include "tests/temporary_folder.h"

namespace moed::testing {
namespace {

constexpr int kNewTokens = 6;

const std::vector<std::vector<TokenId>>& Prompts() {
  static const std::vector<std::vector<TokenId>> prompts = {Tokens({0, 1205, 310, 77, 912, 3001, 15, 268, 9, 2047, 640, 88}),
                                                            Tokens({0, 55}), Tokens({0, 700, 701, 702, 703, 90, 12})};
  return prompts;
}

KvFormat KvInTurn(size_t turn) { return static_cast<KvFormat>(turn % kKvFormatCount); }
std::string Name(KvFormat format) { return StrCat(kKvFormatNames[static_cast<int>(format)], " keys and values"); }

// A JSON file that names the store's model; `rest(layers, experts)`: its other members.
std::string WriteForStore(const std::string& store_path, const std::string& name,
                          const std::function<std::string(int, int)>& rest) {
  const auto store = StoreReader::Open(store_path);
  MOED_CHECK(store.ok());
  const StoreDescription& description = (*store)->description();
  static const TemporaryFolder folder;
  const std::string path = folder / name;
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

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The definition: scalar arithmetic, one token at a time, every expert resident.
const Expected& Definition(KvFormat kv_format, size_t prompt) {
  static std::array<std::vector<Expected>, kKvFormatCount> all;
  std::vector<Expected>& expected = all[static_cast<size_t>(kv_format)];
  if (!expected.empty()) return expected[prompt];
  RigOptions options;
  options.compute = "scalar";
  options.slots = 256;
  options.kv_format = kv_format;
  Rig rig(options);
  for (const auto& p : Prompts()) {
    Expected e;
    e.tokens = rig.Greedy(p, kNewTokens, 1, &e.logits);
    expected.push_back(std::move(e));
  }
  return expected[prompt];
}

void ExpectSameBits(Rig& rig, int chunk, const std::string& what) {
  const KvFormat kv_format = rig.kv().format();
  for (size_t i = 0; i < Prompts().size(); ++i) {
    std::vector<float> logits;
    const Expected& expected = Definition(kv_format, i);
    EXPECT_EQ(rig.Greedy(Prompts()[i], kNewTokens, chunk, &logits), expected.tokens)
        << what << ", " << Name(kv_format) << ", prompt " << i;
    EXPECT_TRUE(SameBits(logits, expected.logits)) << what << ", " << Name(kv_format) << ", prompt " << i;
  }
}

// Of tables of three rows and more, every row and every capacity meets every format of keys and values.
void ExpectSameBitsAtEveryCapacity(RigOptions options, size_t row) {
  for (const int slots : {1, 2, 3, 5, 64, 256}) {
    options.slots = slots;
    options.kv_format = KvInTurn(row++);
    Rig rig(options);
    ExpectSameBits(rig, 5, StrCat(options.policy, " x ", options.predictor, " x ", slots, " slots"));
  }
}

TEST(ExactMode, FormatsOfKeysAndValuesHaveBitsOfTheirOwn) {
  for (size_t i = 0; i < Prompts().size(); ++i) {
    for (size_t format = 0; format < kKvFormatCount; ++format) {
      EXPECT_FALSE(SameBits(Definition(KvInTurn(format), i).logits, Definition(KvInTurn(format + 1), i).logits)) << format;
    }
  }
}

TEST(ExactMode, EveryPolicyAndCapacity) {
  size_t row = 0;
  for (const PolicyRow& policy : Policies()) {
    if (!policy.mask.empty()) continue;  // only with its mask: EveryPresetServesAnExactRequest
    RigOptions options;
    options.policy = policy.name;
    options.predictor = "learned";
    ExpectSameBitsAtEveryCapacity(options, row++);
  }
}

TEST(ExactMode, EveryPredictorAndCapacity) {
  size_t row = 0;
  for (const PredictorRow& predictor : Predictors()) {
    if (!predictor.mask.empty()) continue;  // only with its mask: EveryPresetServesAnExactRequest
    RigOptions options;
    options.predictor = predictor.name;
    ExpectSameBitsAtEveryCapacity(options, row++);
  }
}

// Prompts are computed in borrowed memory, answers are not: what lies in the cache's end goes and comes.
TEST(ExactMode, EveryPolicyThatLends) {
  size_t row = 0;
  for (const PolicyRow& policy : Policies()) {
    if (!policy.mask.empty()) continue;  // only with its mask: EveryPresetServesAnExactRequest
    RigOptions options;
    options.policy = policy.name;
    options.predictor = "learned";
    options.own_step_tokens = 2;
    ExpectSameBitsAtEveryCapacity(options, row++);
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
  size_t row = 0;
  for (const auto& [policy, predictor] : parts) {
    RigOptions options;
    options.kv_format = KvInTurn(row++);
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
    size_t turn = served++;
    for (const int slots : {1, 3, 64}) {
      RigOptions options;
      options.kv_format = KvInTurn(turn++);
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
      size_t turn = static_cast<size_t>(threads);
      for (const int chunk : {1, 3, 12}) {
        RigOptions options;
        options.kv_format = KvInTurn(turn++);
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
      for (size_t format = 0; format < kKvFormatCount; ++format) {
        RigOptions options;
        options.slots = 3;
        options.predictor = "cross-layer-gate";
        options.kv_format = KvInTurn(format);
        Rig rig(options);
        const auto answers = rig.GreedyTogether(batch, kNewTokens, chunk);
        for (size_t i = 0; i < answers.size(); ++i) {
          EXPECT_EQ(answers[i], Definition(options.kv_format, i % Prompts().size()).tokens)
              << batch.size() << " together, chunks of " << chunk << ", " << Name(options.kv_format) << ", " << i;
        }
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
  size_t turn = 0;
  for (const PresetRow& preset : Presets()) {
    for (const bool fill : {false, true}) {
      if (fill && preset.mask != "none") continue;  // refused
      RigOptions options = PresetOptions(preset);
      options.fill = fill;
      options.kv_format = KvInTurn(turn++);
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
    EXPECT_EQ(answers[1], Definition(rig.kv().format(), 1).tokens) << preset.name;
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
    const bool same = SameBits(logits, Definition(options.kv_format, 0).logits);
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

// Of steps of one token: what it loses in each layer.
class LossOfEachToken final : public PassingProvider {
 public:
  explicit LossOfEachToken(ExpertProvider& next) : PassingProvider(next) {}
  void Begin(const LayerRouting& routing) override {
    ASSERT_EQ(routing.tokens.size(), 1u);
    const SequenceCounters before = sequence_counters(routing.tokens[0].sequence);
    PassingProvider::Begin(routing);
    const SequenceCounters after = sequence_counters(routing.tokens[0].sequence);
    ASSERT_EQ(after.routed_tokens, before.routed_tokens + 1);
    const double lost = after.gate_mass_lost - before.gate_mass_lost;
    most = std::max(most, lost);
    losing += lost > 0 ? 1 : 0;
  }
  double most = 0;
  int losing = 0;
};

TEST(ExactMode, ABoundIsKeptForEachTokenUnderEveryPreset) {
  constexpr float kBound = .3f;
  for (const PresetRow& preset : Presets()) {
    RigOptions options = PresetOptions(preset);
    options.fidelity = Fidelity::Bounded(kBound);
    Rig rig(options);
    LossOfEachToken loss(rig.provider());
    rig.recorder = &loss;
    rig.Greedy(Prompts()[0], kNewTokens, 1);
    EXPECT_LE(loss.most, kBound + 1e-6) << preset.name;
    const bool may_lose = preset.rule != "exact" || preset.mask != "none";
    EXPECT_EQ(loss.losing > 0, may_lose) << preset.name;
  }
}

// bf16, of which coding makes most less.
TEST(ExactMode, ACodedStoreHasTheBitsOfThePlainOne) {
  RigOptions options;
  options.expert_formats = "bf16";
  options.policy = options.predictor = "learned";
  const std::string plain = DemoStorePath(options.expert_formats),
                    coded = DemoStorePath(options.expert_formats, kUsualCodingGain);
  ASSERT_LT(std::filesystem::file_size(coded), std::filesystem::file_size(plain));
  size_t turn = 0;
  for (const char* reads : {"auto", "buffered"}) {
    for (const int slots : {1, 3, 64, 256}) {
      options.io_backend = reads;
      options.slots = slots;
      options.own_step_tokens = slots == 64 ? 2 : 0;
      options.kv_format = KvInTurn(turn++);
      options.coded = 0;
      Rig from_plain(options);
      options.coded = kUsualCodingGain;
      Rig from_coded(options);
      for (const auto& prompt : Prompts()) {
        std::vector<float> expected, logits;
        EXPECT_EQ(from_coded.Greedy(prompt, kNewTokens, 5, &logits), from_plain.Greedy(prompt, kNewTokens, 5, &expected));
        EXPECT_TRUE(SameBits(logits, expected)) << reads << " x " << slots << " slots, " << Name(options.kv_format);
      }
    }
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
