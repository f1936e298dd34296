// Models whose prompt is computed whole through the real engine. An encoder-decoder's is a source, and the answer begins a text
// of its own; a prefix-LM's goes on in the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "absl/algorithm/container.h"
#include "core/base/clock.h"
#include "core/engine/step_engine.h"
#include "nlohmann/json.hpp"
#include "tests/engine/observed_answer.h"
#include "tests/file_text.h"
#include "tests/model/long_sequences.h"

namespace moed {
namespace {

constexpr int kContext = 120, kStepTokens = 50, kNewTokens = 40;

struct Source final : public RequestObserver {
  void OnStarted(int prompt, int cached) override { prompt_tokens = prompt, cached_tokens = cached; }
  void OnTokens(TokenDelta delta) override { tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end()); }
  void OnFinish(const FinishInfo& info) override { finish = info; }
  int prompt_tokens = -1, cached_tokens = -1;
  std::vector<TokenInfo> tokens;
  FinishInfo finish{.status = absl::UnknownError("not answered")};
};

class WholePromptEngine : public testing::TestWithParam<std::string> {
 protected:
  void Make(int running, int pages, bool prompt_lookup = false) {
    engine_.reset();
    model_ = std::make_unique<PackedModel>(
        store_, ModelSetup{.max_step_tokens = kStepTokens, .kv_pages = pages, .page_tokens = 16, .max_context = kContext});
    // What steps take has to be known for drafts.
    const Clock& clock = prompt_lookup ? Clock::Real() : static_cast<const Clock&>(clock_);
    auto made = StepEngine::Create({.max_context = kContext,
                                    .max_new_tokens = kContext - 1,
                                    .max_running = running,
                                    .max_step_tokens = kStepTokens,
                                    .prompt_lookup = prompt_lookup},
                                   {model_->model(), provider_, model_->kv(), *tokenizer_, clock});
    ASSERT_TRUE(made.ok()) << made.status();
    engine_ = *std::move(made);
  }
  std::shared_ptr<Source> Ask(const std::vector<TokenId>& source, int new_tokens = kNewTokens) {
    auto answer = std::make_shared<Source>();
    const auto id = engine_->Submit(RequestOf(source, "", new_tokens, ++asked_), answer);
    EXPECT_TRUE(id.ok()) << id.status();
    return answer;
  }
  void RunAll() {
    while (engine_->RunOneStep()) {
    }
  }
  // Of a prefix-LM the first half is a prefix.
  std::vector<TokenId> Prompt(int count, uint64_t seed) const {
    std::vector<TokenId> tokens = RandomTokens(count, seed, 250);
    if (spec_.prefix) tokens[static_cast<size_t>(count) / 2] = TokenId(spec_.prefix->separator);
    return tokens;
  }
  absl::Status Refusal(EngineRequest request) { return engine_->Submit(std::move(request), std::make_shared<Source>()).status(); }

  const StoreReader& store_ = PackedStore(GetParam(), FormatId::kBF16);
  const std::unique_ptr<Tokenizer> tokenizer_ =
      *Tokenizer::FromBlob(*Checkpoint::Open(StrCat(DataFolder(), "/", GetParam()))->CompiledTokenizer());
  const nlohmann::json golden_ = nlohmann::json::parse(ReadFileText(StrCat(DataFolder(), "/", GetParam(), "/golden.json.xz")));
  const ModelSpec spec_ = *SpecFromJson(store_.description().model_spec);
  MemoryProvider provider_{store_};
  FakeClock clock_;
  std::unique_ptr<PackedModel> model_;
  std::unique_ptr<StepEngine> engine_;
  int asked_ = 0;
};

TEST_P(WholePromptEngine, AnswersAsTransformersGenerates) {
  Make(2, 8);
  const auto source = golden_.at("prompt").get<std::vector<int32_t>>();
  const auto greedy = golden_.at("greedy").get<std::vector<int32_t>>();
  const auto answer = Ask({source.begin(), source.end()}, static_cast<int>(greedy.size()));
  RunAll();
  EXPECT_EQ(answer->finish.status, absl::OkStatus());
  EXPECT_EQ(answer->prompt_tokens, static_cast<int>(source.size()));
  EXPECT_EQ(answer->finish.prompt_tokens, static_cast<int>(source.size()));
  EXPECT_EQ(answer->finish.choices_dropped, golden_.at("dropped").get<uint64_t>());
  std::vector<int32_t> tokens;
  for (const TokenInfo& info : answer->tokens) tokens.push_back(info.token.value());
  EXPECT_EQ(tokens, greedy);
}

// Sources come while others are answered; with few pages the youngest give way and are computed again. Nobody's bits change, nor
// what is told of full experts.
TEST_P(WholePromptEngine, TogetherAsAlone) {
  std::vector<std::vector<TokenId>> sources;
  std::vector<std::shared_ptr<Source>> alone;
  Make(1, 8);
  for (int i = 0; i < 5; ++i) {
    sources.push_back(Prompt(10 + 9 * i, static_cast<uint64_t>(i + 1)));
    alone.push_back(Ask(sources.back()));
    RunAll();
    EXPECT_EQ(alone.back()->finish.status, absl::OkStatus());
  }
  for (const int pages : {40, 9}) {
    Make(4, pages);
    std::vector<std::shared_ptr<Source>> together;
    for (const auto& source : sources) {
      together.push_back(Ask(source));
      engine_->RunOneStep();
      engine_->RunOneStep();
    }
    RunAll();
    int preemptions = 0;
    for (size_t i = 0; i < sources.size(); ++i) {
      EXPECT_EQ(together[i]->finish.status, absl::OkStatus());
      ExpectSameBits(together[i]->tokens, alone[i]->tokens, StrCat("source ", i, ", ", pages, " pages"));
      EXPECT_EQ(together[i]->finish.choices_dropped, alone[i]->finish.choices_dropped);
      EXPECT_EQ(together[i]->cached_tokens, 0);
      preemptions += together[i]->finish.preemptions;
    }
    EXPECT_EQ(preemptions > 0, pages == 9);
  }
}

// What is drafted of an answer may be its source's; it changes no bit.
TEST_P(WholePromptEngine, DraftsAreComputedWithTheSameBits) {
  Make(1, 8);
  std::vector<std::shared_ptr<Source>> plain;
  const auto ask_all = [&] {
    std::vector<std::shared_ptr<Source>> answers;
    for (uint64_t seed = 1; seed < 4; ++seed) {
      answers.push_back(Ask(Prompt(20, seed), 60));
      RunAll();
    }
    return answers;
  };
  plain = ask_all();
  Make(1, 8, /*prompt_lookup=*/true);
  const auto drafted = ask_all();
  for (size_t i = 0; i < plain.size(); ++i) ExpectSameBits(drafted[i]->tokens, plain[i]->tokens, StrCat("source ", i));
  EXPECT_GT(engine_->Stats().drafted_tokens, 0u);
}

// The longest prompt leaves the context room for the rest of its answer, or is as long as a step; a prefix-LM's has the other
// requests' tokens beside it.
TEST_P(WholePromptEngine, SourcesHaveALimit) {
  Make(2, 8);
  const int most = spec_.encoder ? kStepTokens : kStepTokens - 1;
  EXPECT_EQ(engine_->limits().whole_prompt_tokens, most);
  const auto longest = Ask(Prompt(most, 3), kContext - 1);
  RunAll();
  EXPECT_EQ(longest->finish.status, absl::OkStatus());
  EXPECT_EQ(longest->finish.reason, FinishReason::kContext);
  EXPECT_EQ(longest->finish.completion_tokens, kContext - most - (spec_.encoder ? 1 : 0));
  const absl::Status refused = Refusal(RequestOf(Prompt(most + 1, 3), "", 1, 99));
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              testing::HasSubstr(StrCat("prompt: ", most + 1, " tokens are too many: ",
                                        spec_.encoder ? "an encoder takes all of a source" : "a prefix-LM takes all of a prompt",
                                        " in one step, here of at most ", most)));
}

TEST_P(WholePromptEngine, WhatItHasNoneOfIsRefusedByName) {
  Make(1, 8);
  const std::string kind = spec_.encoder ? "an encoder-decoder" : "a prefix-LM";
  EngineRequest request = RequestOf(Prompt(5, 1), "conversation", 3, 1);
  EXPECT_THAT(std::string(Refusal(request).message()), testing::StartsWith("session_id: the model is " + kind));
  request = RequestOf(Prompt(5, 1), "", 3, 2);
  request.kind = RequestKind::kScore;
  EXPECT_THAT(std::string(Refusal(request).message()), testing::StartsWith("prompt: the model is " + kind));
}

// A decoder's own tokens are what is penalised, not the source's; a prefix-LM's text is all of it.
TEST_P(WholePromptEngine, PenaltiesAreOfTheTextThatGoesOn) {
  Make(1, 8);
  const std::vector<TokenId> source = Prompt(12, 5);
  const auto plain = Ask(source, 1);
  RunAll();
  EngineRequest request = RequestOf(source, "", 1, 50);
  request.prompt.push_back(plain->tokens[0].token);
  const auto expected = std::make_shared<Source>(), got = std::make_shared<Source>();
  ASSERT_TRUE(engine_->Submit(request, expected).ok());
  RunAll();
  request.name = "penalised";
  request.sampling.repetition_penalty = 1e6f;
  ASSERT_TRUE(engine_->Submit(request, got).ok());
  RunAll();
  const bool of_prompt = absl::c_linear_search(request.prompt, expected->tokens[0].token);
  EXPECT_EQ(got->tokens[0].token == expected->tokens[0].token, spec_.encoder || !of_prompt);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, WholePromptEngine, testing::ValuesIn(WholePromptNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
