// The CUDA kernels in emulation on the real expert path: the bits of "scalar" for every policy, and for the capacities and chunks
// that make the most of waits. Emulation is slow, so the prompt is short.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "core/base/status.h"
#include "core/expert/policies/table.h"
#include "tests/kernels/emulated_backend.h"
#include "tests/system/demo_rig.h"

namespace moed::testing {
namespace {

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logits;
};

Answer AnswerOf(Rig& rig, int chunk) {
  Answer answer;
  answer.tokens = rig.Greedy(Tokens({0, 700, 701}), 2, chunk, &answer.logits);
  return answer;
}

const Answer& Definition() {
  static const Answer answer = [] {
    Rig rig({.compute = "scalar", .slots = 256});
    return AnswerOf(rig, 1);
  }();
  return answer;
}

DeviceTierStats ExpectSameBits(const RigOptions& options, int chunk) {
  // Experts are on their way to a device's own memory for as long as the rules of order allow.
  EmulatedBackend device(
      {.watch = false, .attributes = options.device_slots > 0 ? emulation::kDiscreteDevice : emulation::kUnifiedDevice});
  Rig rig(options, nullptr, device.backend.get());
  const Answer found = AnswerOf(rig, chunk);
  EXPECT_EQ(found.tokens, Definition().tokens);
  EXPECT_EQ(found.logits.size(), Definition().logits.size());
  if (found.logits.size() != Definition().logits.size()) return {};
  EXPECT_EQ(std::memcmp(found.logits.data(), Definition().logits.data(), found.logits.size() * sizeof(float)), 0);
  return rig.provider().Stats().device;
}

TEST(EmulatedDevice, EveryPolicy) {
  for (const PolicyRow& policy : Policies()) {
    if (!policy.mask.empty()) continue;  // only with its mask
    SCOPED_TRACE(std::string(policy.name));
    ExpectSameBits({.policy = std::string(policy.name), .predictor = "cross-layer-gate", .slots = 3}, 2);
  }
}

TEST(EmulatedDevice, EveryPolicyWithExpertsInMemoryOfItsOwn) {
  for (const PolicyRow& policy : Policies()) {
    if (!policy.mask.empty()) continue;
    SCOPED_TRACE(std::string(policy.name));
    ExpectSameBits({.policy = std::string(policy.name), .predictor = "cross-layer-gate", .slots = 12, .device_slots = 12}, 2);
  }
}

TEST(EmulatedDevice, EveryPlaceOfExperts) {
  for (const int slots : {1, 40}) {
    for (const int device_slots : {2, 40, 256}) {
      SCOPED_TRACE(StrCat(slots, " slots in the host's memory, ", device_slots, " on the device"));
      ExpectSameBits({.slots = slots, .device_slots = device_slots}, 3);
    }
  }
}

// The processor computes what lies in the host's memory: all of it, since bringing it would take for ever, or what is tried.
TEST(EmulatedDevice, ExpertsOfTheProcessorBesideTheDevices) {
  for (const int slots : {1, 40}) {
    for (const int device_slots : {2, 40}) {
      SCOPED_TRACE(StrCat(slots, " slots in the host's memory, ", device_slots, " on the device"));
      const RigOptions options{.slots = slots, .bring_seconds_per_byte = 1, .device_slots = device_slots};
      const DeviceTierStats all = ExpectSameBits(options, 3);
      EXPECT_GT(all.UsesOf(TierUse::kOnProcessor), 0u);
      EXPECT_EQ(all.UsesOf(TierUse::kOverTheBus), 0u);
      RigOptions in_no_time = options;
      in_no_time.bring_seconds_per_byte = 1e-30;
      const DeviceTierStats tried = ExpectSameBits(in_no_time, 3);
      EXPECT_GT(tried.UsesOf(TierUse::kOnProcessor), 0u);
      EXPECT_LT(tried.UsesOf(TierUse::kOnProcessor), all.UsesOf(TierUse::kOnProcessor));
    }
  }
}

// Once all experts are there a token is one list of launches, in the host's memory or on the device; its counts are those of the
// other way.
TEST(EmulatedDevice, WholeSteps) {
  for (const int device_slots : {0, 272}) {
    SCOPED_TRACE(StrCat(device_slots, " slots on the device"));
    const RigOptions options{.slots = 272, .device_slots = device_slots};  // 256 experts, and room to read
    EmulatedBackend device(
        {.watch = false, .attributes = device_slots > 0 ? emulation::kDiscreteDevice : emulation::kUnifiedDevice});
    Rig rig(options, nullptr, device.backend.get());
    const ModelSpec& spec = rig.model().spec();
    std::vector<CachedKey> all;
    for (const LayerId layer : spec.MoeLayers()) {
      for (int32_t expert = 0; expert < spec.experts; ++expert) all.push_back({layer, expert});
    }
    ASSERT_EQ(rig.provider().Prefetch(all), all.size());
    while (rig.provider().WhereAllLie().empty()) std::this_thread::yield();  // reads and copies are on their way
    const ExpertStats before = rig.provider().Stats();
    const Answer found = AnswerOf(rig, 3);
    EXPECT_EQ(found.tokens, Definition().tokens);
    EXPECT_EQ(std::memcmp(found.logits.data(), Definition().logits.data(), found.logits.size() * sizeof(float)), 0);
    const ExpertStats after = rig.provider().Stats();
    EXPECT_EQ(after.device.StepsOf(StepWay::kWhole), 2u);
    uint64_t hits = 0;
    for (const LayerStats& layer : after.layers) hits += layer.lookups[static_cast<size_t>(Phase::kDecode)][0];
    EXPECT_EQ(hits, spec.MoeLayers().size() * static_cast<size_t>(spec.top_k)) << "of one token";
    EXPECT_EQ(after.read_busy_nanos, before.read_busy_nanos);
  }
}

TEST(EmulatedDevice, EveryCapacityAndChunk) {
  for (const int slots : {1, 5, 256}) {
    for (const int chunk : {1, 3}) {
      SCOPED_TRACE(StrCat(slots, " slots, chunks of ", chunk));
      ExpectSameBits({.slots = slots}, chunk);
    }
  }
}

}  // namespace
}  // namespace moed::testing
