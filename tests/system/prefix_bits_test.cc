// What a prefix or a session spares a request changes none of its bits: the real engine on the demo model, with much and with
// little of everything, against an engine that computes every request from its start.
#include <gtest/gtest.h>

#include <memory>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/engine/step_engine.h"
#include "tests/engine/observed_answer.h"
#include "tests/system/demo_rig.h"

namespace moed::testing {
namespace {

constexpr int kContext = 256, kNewTokens = 5;

using Answer = ObservedAnswer;

struct Serving {
  Serving(RigOptions options, int chunk, bool prefix_cache) : rig(Adjusted(std::move(options))) {
    const EngineParts parts{rig.model(), rig.provider(), rig.kv(), *tokenizer, clock};
    auto made = StepEngine::Create({.max_context = kContext,
                                    .max_new_tokens = kContext - 1,
                                    .max_running = std::min(3, chunk),
                                    .max_step_tokens = chunk,
                                    .prefix_cache = prefix_cache},
                                   parts);
    EXPECT_TRUE(made.ok()) << made.status();
    engine = *std::move(made);
  }
  static RigOptions Adjusted(RigOptions options) {
    options.max_context = kContext;
    return options;
  }

  std::shared_ptr<Answer> Ask(const std::vector<TokenId>& prompt, const std::string& session = "") {
    auto answer = std::make_shared<Answer>();
    EXPECT_TRUE(engine->Submit(RequestOf(prompt, session, kNewTokens, ++asked), answer).ok());
    return answer;
  }
  void Run() {
    while (engine->RunOneStep()) {
    }
  }

  static const Tokenizer& DemoTokenizer() {
    static const std::unique_ptr<Tokenizer> demo = [] {
      auto store = StoreReader::Open(DemoStorePath(RigOptions().expert_formats));
      return *Tokenizer::FromBlob((*store)->TakeTokenizer());
    }();
    return *demo;
  }

  const FakeClock clock;
  const Tokenizer* const tokenizer = &DemoTokenizer();
  Rig rig;
  std::unique_ptr<StepEngine> engine;
  int asked = 0;
};

// A beginning of two pages and a bit that all have, then ends of their own, one of them within the second page.
const std::vector<std::vector<TokenId>>& Prompts() {
  static const std::vector<std::vector<TokenId>> prompts = [] {
    std::vector<TokenId> common;
    for (int i = 0; i < 140; ++i) common.push_back(TokenId(i * 37 % 3900));
    std::vector<std::vector<TokenId>> all(5, common);
    for (int i = 0; i < 9; ++i) {
      for (size_t k = 0; k < 3; ++k) all[k].push_back(TokenId(100 * static_cast<int>(k + 1) + i));
    }
    all[3].resize(101);
    all[4][20] = TokenId(7);
    return all;
  }();
  return prompts;
}

const std::vector<std::vector<TokenInfo>>& Definition() {
  static const std::vector<std::vector<TokenInfo>> definition = [] {
    RigOptions options;
    options.slots = 256;
    Serving serving(options, 4, /*prefix_cache=*/false);
    std::vector<std::vector<TokenInfo>> all;
    for (const auto& prompt : Prompts()) {
      const auto answer = serving.Ask(prompt);
      serving.Run();
      EXPECT_TRUE(answer->status.ok()) << answer->status;
      EXPECT_EQ(answer->cached_tokens, 0);
      EXPECT_EQ(answer->tokens.size(), static_cast<size_t>(kNewTokens));
      all.push_back(answer->tokens);
    }
    return all;
  }();
  return definition;
}

void ExpectSameBits(const Answer& answer, size_t prompt, const std::string& what) {
  ASSERT_TRUE(answer.status.ok()) << what << ": " << answer.status;
  moed::ExpectSameBits(answer.tokens, Definition()[prompt], what);
}

TEST(PrefixBits, HitsMissesChunksBatchesAndCapacities) {
  struct Case {
    int slots, chunk, pages;
  };
  for (const Case& c : {Case{3, 32, 4}, Case{64, 7, 7}, Case{64, 32, 32}, Case{64, 1, 32}}) {
    const std::string what = StrCat(c.slots, " slots, chunks of ", c.chunk, ", ", c.pages, " pages");
    RigOptions options;
    options.slots = c.slots;
    options.kv_pages = c.pages;
    Serving serving(options, c.chunk, /*prefix_cache=*/true);
    int cached = 0;
    for (const bool together : {false, true}) {
      std::vector<std::shared_ptr<Answer>> answers;
      for (size_t i = 0; i < Prompts().size(); ++i) {
        answers.push_back(serving.Ask(Prompts()[i], i % 2 == 0 ? "" : "session"));
        if (!together || i % 2 == 1) serving.Run();
      }
      serving.Run();
      for (size_t i = 0; i < answers.size(); ++i) {
        ExpectSameBits(*answers[i], i, StrCat(what, ", prompt ", i, together ? " beside others" : ""));
        cached += answers[i]->cached_tokens;
      }
    }
    EXPECT_GT(cached, 300) << what;
  }
}

}  // namespace
}  // namespace moed::testing
