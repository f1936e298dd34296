// Exact mode: logits and greedy tokens are the same bits whatever the policy, predictor, capacity, I/O backend, compute backend,
// thread count, prompt chunking and batch composition. Every table is iterated, so a new row is tested the day it is added.
#include <gtest/gtest.h>

#include <cstring>

#include "core/base/status.h"
#include "tests/system/demo_rig.h"

namespace moed::testing {
namespace {

constexpr int kNewTokens = 6;

const std::vector<std::vector<TokenId>>& Prompts() {
  static const std::vector<std::vector<TokenId>> prompts = {Tokens({0, 1205, 310, 77, 912, 3001, 15, 268, 9, 2047, 640, 88}),
                                                            Tokens({0, 55}), Tokens({0, 700, 701, 702, 703, 90, 12})};
  return prompts;
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

TEST(ExactMode, EveryPolicyPredictorCapacityAndReadBackend) {
  for (const PolicyRow& policy : Policies()) {
    for (const PredictorRow& predictor : Predictors()) {
      for (const int slots : {1, 2, 3, 5, 64, 256}) {
        for (const ReadBackendRow& reads : ReadBackends()) {
          RigOptions options;
          options.policy = policy.name;
          options.predictor = predictor.name;
          options.slots = slots;
          options.io_backend = reads.name;
          if (!OpenReadBackend(reads.name, DemoStorePath(options.expert_formats), {}).ok())
            continue;  // refused here; tests/io says why
          const std::string what = StrCat(policy.name, " x ", predictor.name, " x ", slots, " slots x ", reads.name);
          Rig rig(options);
          ExpectSameBits(rig, 5, what);
        }
      }
    }
  }
}

TEST(ExactMode, EveryComputeBackendThreadCountAndChunk) {
  for (const BackendRow& backend : Backends()) {
    if (!backend.supported()) continue;
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

TEST(ExactMode, ReferencePrecisionIsTheFirstWhateverElseIsStored) {
  RigOptions options;
  options.expert_formats = "q8,q4,q2";
  Rig rig(options);
  ExpectSameBits(rig, 5, "a store that holds lower precisions too");
}

}  // namespace
}  // namespace moed::testing
