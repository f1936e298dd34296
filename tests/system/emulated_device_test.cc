// The CUDA kernels in emulation on the real expert path: the bits of "scalar" for every policy, and for the capacities and chunks
// that make the most of waits. Emulation is slow, so the prompt is short.
#include <gtest/gtest.h>

#include <cstring>

#include "core/base/status.h"
#include "core/expert/policies/table.h"
#include "tests/kernels/tested_backends.h"
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

void ExpectSameBits(const RigOptions& options, int chunk) {
  InlineExecutor executor;
  const std::unique_ptr<ComputeBackend> device = MakeTestedBackend(kCudaEmulated, executor).value();
  Rig rig(options, nullptr, device.get());
  const Answer found = AnswerOf(rig, chunk);
  EXPECT_EQ(found.tokens, Definition().tokens);
  ASSERT_EQ(found.logits.size(), Definition().logits.size());
  EXPECT_EQ(std::memcmp(found.logits.data(), Definition().logits.data(), found.logits.size() * sizeof(float)), 0);
}

TEST(EmulatedDevice, EveryPolicy) {
  for (const PolicyRow& policy : Policies()) {
    if (!policy.mask.empty()) continue;  // only with its mask
    SCOPED_TRACE(std::string(policy.name));
    ExpectSameBits({.policy = std::string(policy.name), .predictor = "cross-layer-gate", .slots = 3}, 2);
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
