// Drafts change no bit, whatever the model's layers keep: every tiny checkpoint, through the real engine, with drafts and
// without.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "tests/engine/model_serving.h"

namespace moed {
namespace draft_families_test {

constexpr int kContext = 160, kStepTokens = 61, kNewTokens = 90;

// Every step takes as long as any other: drafts are always worth trying.
class EvenClock final : public Clock {
 public:
  int64_t NowNanos() const override { return ++now_; }

 private:
  mutable std::atomic<int64_t> now_{0};
};

class DraftFamiliesTest : public testing::TestWithParam<std::string> {};

// Answers of two tokens alone: the last three are nearly always there before, and what followed them is right as often as not.
TEST_P(DraftFamiliesTest, AnswersAreThoseWithoutDrafts) {
  const auto tokenizer = CheckpointTokenizer(GetParam());
  const ModelSetup setup{.max_step_tokens = kStepTokens, .kv_slots = 2, .page_tokens = 16, .max_context = kContext};
  StepEngineOptions options{
      .max_context = kContext, .max_new_tokens = kContext - 1, .max_running = 2, .max_step_tokens = kStepTokens};
  const EvenClock clock;
  ModelServing with(GetParam(), *tokenizer, clock, setup, options);
  options.prompt_lookup = false;
  ModelServing without(GetParam(), *tokenizer, clock, setup, options);
  for (const uint64_t seed : {1, 2, 3}) {
    EngineRequest request =
        RequestOf(RandomTokens(static_cast<int>(20 * seed), seed, 200), "", kNewTokens, static_cast<int>(seed));
    request.sampling.logit_bias = {{TokenId(50), 100}, {TokenId(60), 100}};
    request.sampling.temperature = static_cast<float>(seed - 1);
    request.sampling.seed = seed;
    ExpectSameBits(with.Serve(request)->tokens, without.Serve(request)->tokens, StrCat("seed ", seed));
  }
  const EngineStats stats = with.engine->Stats();
  EXPECT_EQ(without.engine->Stats().drafted_tokens, 0u);
  if (std::ranges::count(with.model.model().spec().recurrent, true) > 0) {
    EXPECT_EQ(stats.drafted_tokens, 0u) << "a state cannot be taken back";
  } else {
    EXPECT_GT(stats.accepted_draft_tokens, 0u);
    EXPECT_LT(stats.steps, without.engine->Stats().steps);
  }
}

std::vector<std::string> AllCheckpoints() {
  std::vector<std::string> names = CheckpointNames();
  for (std::string& name : WholePromptNames()) names.push_back(std::move(name));
  return names;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DraftFamiliesTest, testing::ValuesIn(AllCheckpoints()),
                         [](const auto& info) { return info.param; });

}  // namespace draft_families_test
}  // namespace moed
