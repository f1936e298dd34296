// Pages, states and windows that requests share change no bit, whatever the model's layers keep: every tiny checkpoint, through
// the real engine, against an engine that computes each request from its start.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "tests/engine/model_serving.h"

namespace moed {
namespace prefix_families_test {

constexpr int kContext = 160, kNewTokens = 5, kShared = 90;

using Answer = ObservedAnswer;

struct Serving : ModelServing {
  Serving(const std::string& checkpoint, const Tokenizer& tokenizer, const Clock& clock, bool prefix_cache, int step_tokens,
          int slots)
      : ModelServing(checkpoint, tokenizer, clock,
                     {.max_step_tokens = step_tokens, .kv_slots = slots, .page_tokens = 16, .max_context = kContext},
                     {.max_context = kContext,
                      .max_new_tokens = kContext - 1,
                      .max_running = 2,
                      .max_step_tokens = step_tokens,
                      .prefix_cache = prefix_cache}) {}

  std::shared_ptr<Answer> Ask(const std::vector<TokenId>& prompt, const std::string& session = "") {
    return ModelServing::Ask(RequestOf(prompt, session, kNewTokens, ++asked));
  }
  std::shared_ptr<Answer> Serve(const std::vector<TokenId>& prompt, const std::string& session = "") {
    return ModelServing::Serve(RequestOf(prompt, session, kNewTokens, ++asked));
  }

  int asked = 0;
};

class PrefixFamiliesTest : public testing::TestWithParam<std::string> {
 protected:
  void ExpectSameBits(const Answer& answer, const std::vector<TokenId>& prompt, const std::string& what) {
    std::shared_ptr<Answer>& expected = expected_[prompt];
    if (expected == nullptr) expected = alone_.Serve(prompt);
    moed::ExpectSameBits(answer.tokens, expected->tokens, what);
  }
  // Of `shared_` so many tokens, then random ones.
  std::vector<TokenId> Prompt(int shared, int more, uint64_t seed) const {
    std::vector<TokenId> prompt(shared_.begin(), shared_.begin() + shared);
    const auto rest = RandomTokens(more, seed, 200);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    return prompt;
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = CheckpointTokenizer(GetParam());
  const FakeClock clock_{};
  const std::vector<TokenId> shared_ = RandomTokens(kShared, 1, 200);
  std::map<std::vector<TokenId>, std::shared_ptr<Answer>> expected_;
  Serving alone_{GetParam(), *tokenizer_, clock_, /*prefix_cache=*/false, 50, 4};
};

TEST_P(PrefixFamiliesTest, RequestsThatShareABeginning) {
  for (const auto& [step_tokens, slots] : {std::pair(32, 6), std::pair(90, 4)}) {
    Serving serving(GetParam(), *tokenizer_, clock_, /*prefix_cache=*/true, step_tokens, slots);
    const std::string what = StrCat("steps of ", step_tokens, ", ", slots, " slots");
    int cached = 0;
    const auto serve = [&](const std::vector<TokenId>& prompt) {
      const auto answer = serving.Serve(prompt);
      ExpectSameBits(*answer, prompt, StrCat(what, ", ", prompt.size(), " tokens"));
      cached += answer->cached_tokens;
      return answer;
    };
    for (uint64_t seed = 2; seed < 5; ++seed) serve(Prompt(kShared, 9, seed));
    EXPECT_EQ(serve(Prompt(kShared, 20, 5))->cached_tokens, kShared) << what;
    serve(Prompt(70, 0, 0));
    serve(Prompt(70, 0, 0));
    EXPECT_GE(serve(Prompt(70, 0, 0))->cached_tokens, 64) << what << ": as far as its full pages";
    EXPECT_GT(cached, 200) << what;
  }
}

// The turn is cancelled within its answer, and its session goes on from where it was.
TEST_P(PrefixFamiliesTest, ASessionAfterACancelledTurn) {
  Serving serving(GetParam(), *tokenizer_, clock_, /*prefix_cache=*/true, 32, 4);
  const std::vector<TokenId> first = Prompt(60, 0, 0), next = Prompt(65, 30, 7);
  const auto begun = serving.Serve(first, "s");
  std::vector<TokenId> history = first;
  for (const TokenInfo& info : begun->tokens) history.push_back(info.token);
  std::vector<TokenId> turn = history;
  turn.insert(turn.end(), next.begin(), next.begin() + 60);
  auto cancelled = serving.Ask(turn, "s");
  while (cancelled->tokens.size() < 3) serving.engine->RunOneStep();
  serving.engine->Cancel(serving.last, absl::CancelledError("no"));
  while (serving.engine->RunOneStep()) {
  }
  EXPECT_TRUE(absl::IsCancelled(cancelled->status));
  history.insert(history.end(), next.begin() + 60, next.end());
  const auto answer = serving.Serve(history, "s");
  EXPECT_GE(answer->cached_tokens, 60 + kNewTokens - 1) << "all but its last token";
  ExpectSameBits(*answer, history, "after a cancelled turn");
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, PrefixFamiliesTest, testing::ValuesIn(CheckpointNames()),
                         [](const auto& info) { return info.param; });

}  // namespace prefix_families_test
}  // namespace moed
