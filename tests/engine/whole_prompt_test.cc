// Models whose prompt is computed whole through the real engine. An encoder-decoder's is a source, and the answer begins a text
// of its own; a prefix-LM's goes on in the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "absl/algorithm/container.h"
#include "core/base/clock.h"
#include "core/engine/step_engine.h"
#include "nlohmann/json.hpp"
#include "tests/engine/observed_answer.h"
#include "tests/file_text.h"
#include "tests/model/long_sequences.h"

namespace moed {
namespace whole_prompt_test {

constexpr int kContext = 120, kStepTokens = 50, kNewTokens = 40;

struct Source final : public RequestObserver {
  void OnStarted(int prompt, int cached) override { prompt_tokens = prompt, cached_tokens = cached; }
  void OnTokens(TokenDelta delta) override { tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end()); }
  void OnFinish(const FinishInfo& info) override { finish = info; }
  int prompt_tokens = -1, cached_tokens = -1;
  std::vector<TokenInfo> tokens;
  FinishInfo finish{{.status = absl::UnknownError("not answered")}};
};

class WholePromptEngine : public testing::TestWithParam<std::string> {
 protected:
  struct Options {
    bool prompt_lookup = false;
    bool prefix_cache = true;
    KvFormat kv_format = KvFormat::kF32;
  };
  void Make(int running, int pages, const Options& options = {false, true, KvFormat::kF32}) {
    engine_.reset();
    model_ = std::make_unique<PackedModel>(store_, ModelSetup{.max_step_tokens = kStepTokens,
                                                              .kv_pages = pages,
                                                              .page_tokens = 16,
                                                              .max_context = kContext,
                                                              .kv_format = options.kv_format});
    // What steps take has to be known for drafts.
    const Clock& clock = options.prompt_lookup ? Clock::Real() : static_cast<const Clock&>(clock_);
    auto made = StepEngine::Create({.max_context = kContext,
                                    .max_new_tokens = kContext - 1,
                                    .max_running = running,
                                    .max_step_tokens = kStepTokens,
                                    .prefix_cache = options.prefix_cache,
                                    .prompt_lookup = options.prompt_lookup},
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
  EngineRequest ScoreOf(const std::vector<TokenId>& source, std::vector<TokenId> target, int alternatives = 0) {
    EngineRequest request;
    request.name = StrCat("scored ", ++asked_);
    request.kind = RequestKind::kScore;
    request.prompt = source;
    request.target = std::move(target);
    request.top_logprobs = alternatives;
    return request;
  }
  std::shared_ptr<Source> Score(const std::vector<TokenId>& source, std::vector<TokenId> target, int alternatives = 0) {
    auto scored = std::make_shared<Source>();
    const auto id = engine_->Submit(ScoreOf(source, std::move(target), alternatives), scored);
    EXPECT_TRUE(id.ok()) << id.status();
    return scored;
  }
  std::vector<TokenId> TokensOf(const char* golden) const {
    const auto numbers = golden_.at(golden).get<std::vector<int32_t>>();
    return {numbers.begin(), numbers.end()};
  }
  void RunAll() {
    while (engine_->RunOneStep()) {
    }
  }
  // Of a prefix-LM the first half is a prefix.
  std::vector<TokenId> Prompt(int count, uint64_t seed) const {
    std::vector<TokenId> tokens = RandomTokens(count, seed, 250);
    if (spec_.prefix && count > 0) tokens[static_cast<size_t>(count) / 2] = TokenId(spec_.prefix->separator);
    return tokens;
  }
  // What requests with this prompt have in common.
  int SharedOf(const std::vector<TokenId>& prompt) const {
    if (spec_.encoder) return static_cast<int>(prompt.size());
    return static_cast<int>(prompt.size()) <= spec_.prefix->expert_capacity ? static_cast<int>(prompt.size() / 2) : 0;
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
  Make(1, 8, {.prompt_lookup = true});
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
  request.target = {TokenId(1)};
  EXPECT_THAT(std::string(Refusal(request).message()), testing::StartsWith("target: "));
}

TEST_P(WholePromptEngine, ScoresAsTransformersDoes) {
  Make(2, 8);
  const auto scored = Score(TokensOf("prompt"), TokensOf("target"));
  RunAll();
  EXPECT_EQ(scored->finish.status, absl::OkStatus());
  EXPECT_EQ(scored->finish.prompt_tokens, static_cast<int>(golden_.at("prompt").size()));
  EXPECT_EQ(scored->finish.choices_dropped, golden_.at("dropped").get<uint64_t>());
  const auto expected = golden_.at("target_logprobs").get<std::vector<double>>();
  const auto tolerance = 1e-5 * golden_.at("logits_std").get<double>();
  ASSERT_EQ(scored->finish.prompt_logprobs.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(scored->finish.prompt_logprobs[i], expected[i], tolerance) << i;
}

// A target's bits are those of the answer that it is; they depend on nobody else in the steps, nor on the pieces it comes in.
TEST_P(WholePromptEngine, TargetsAreScoredAsAnswersAreGiven) {
  const std::vector<TokenId> source = Prompt(30, 1);
  Make(1, 8);
  const auto answer = Ask(source, 60);
  RunAll();
  std::vector<TokenId> target;
  for (const TokenInfo& info : answer->tokens) target.push_back(info.token);
  for (const int running : {1, 3}) {
    Make(running, 16);
    const auto other = running > 1 ? Ask(Prompt(20, 2)) : nullptr;
    const auto scored = Score(source, target, 20), one = Score(source, {target[0]}, 20);
    RunAll();
    ASSERT_EQ(scored->finish.prompt_logprobs.size(), target.size());
    for (size_t i = 0; i < target.size(); ++i) {
      EXPECT_EQ(scored->finish.prompt_logprobs[i], answer->tokens[i].logprob) << i;
      EXPECT_EQ(scored->finish.prompt_top[i], answer->tokens[i].top) << i;
    }
    EXPECT_EQ(one->finish.prompt_logprobs, std::vector<float>{answer->tokens[0].logprob});
  }
}

TEST_P(WholePromptEngine, TargetsHaveTheRoomThatThePromptLeaves) {
  Make(1, 8);
  const int most = kContext - 30 - (spec_.encoder ? 1 : 0);
  const auto longest = Score(Prompt(30, 1), RandomTokens(most, 2, 250));
  RunAll();
  EXPECT_EQ(longest->finish.prompt_logprobs.size(), static_cast<size_t>(most));
  const auto refusal = [&](int source, std::vector<TokenId> target, int top = 0) {
    return std::string(Refusal(ScoreOf(Prompt(source, 1), std::move(target), top)).message());
  };
  EXPECT_THAT(refusal(30, RandomTokens(most + 1, 2, 250)),
              testing::StartsWith(StrCat("target: ", most + 1, " tokens are too many")));
  EXPECT_THAT(refusal(30, {}), testing::StartsWith("target: missing"));
  EXPECT_THAT(refusal(30, {TokenId(1), TokenId(spec_.vocabulary)}), testing::StartsWith("target[1]: token"));
  EXPECT_THAT(refusal(30, {TokenId(1)}, 21), testing::StartsWith("top_logprobs: 21"));
  EXPECT_THAT(refusal(kStepTokens + 1, {TokenId(1)}), testing::StartsWith("prompt: 51 tokens are too many"));
  EXPECT_THAT(refusal(0, {TokenId(1)}), testing::StartsWith("prompt: empty"));
}

// One that computes its source itself defines the bits, of the answer and of what is scored.
TEST_P(WholePromptEngine, EqualSourcesAreComputedOnce) {
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kQ8}) {
    for (const int tokens : {5, 32, 41}) {  // within a page, full ones, beyond some
      const std::vector<TokenId> source = Prompt(tokens, 3), target = RandomTokens(20, 4, 250);
      const int shared = SharedOf(source);
      const std::string what = StrCat("format ", static_cast<int>(format), ", ", tokens, " tokens");
      Make(1, 8, {.prefix_cache = false, .kv_format = format});
      const auto alone = Ask(source), scored_alone = Score(source, target, 5);
      RunAll();
      EXPECT_EQ(scored_alone->cached_tokens, 0) << what;
      const auto expect_same = [&](const Source& answer, const Source& scored) {
        ExpectSameBits(answer.tokens, alone->tokens, what);
        EXPECT_EQ(answer.finish.choices_dropped, alone->finish.choices_dropped) << what;
        EXPECT_EQ(scored.finish.prompt_logprobs, scored_alone->finish.prompt_logprobs) << what;
        EXPECT_EQ(scored.finish.prompt_top, scored_alone->finish.prompt_top) << what;
      };
      Make(4, 40, {.kv_format = format});
      std::vector<std::shared_ptr<Source>> answers, scored;
      const auto ask = [&] { answers.push_back(Ask(source)), scored.push_back(Score(source, target, 5)); };
      ask();  // two that come at once
      for (int step = 0; step < 4; ++step) engine_->RunOneStep();
      ask();  // while the first is answered
      RunAll();
      ask();
      RunAll();
      for (size_t i = 0; i < answers.size(); ++i) {
        expect_same(*answers[i], *scored[i]);
        EXPECT_EQ(answers[i]->cached_tokens, i == 0 ? 0 : shared) << what;
        EXPECT_EQ(scored[i]->cached_tokens, shared) << what;
      }
      EXPECT_EQ(engine_->Stats().prefix_hits, static_cast<uint64_t>(5 * shared)) << what;
    }
  }
}

TEST_P(WholePromptEngine, NoOtherTenantAndNoOtherSourceBeginsWithIt) {
  Make(2, 24);
  const std::vector<TokenId> source = Prompt(spec_.prefix ? std::min(24, spec_.prefix->expert_capacity) : 24, 3);
  const auto cached = [&](std::vector<TokenId> prompt, const std::string& tenant) {
    EngineRequest request = RequestOf(std::move(prompt), "", 2, ++asked_);
    request.tenant = tenant;
    const auto answer = std::make_shared<Source>();
    EXPECT_TRUE(engine_->Submit(request, answer).ok());
    RunAll();
    return answer->cached_tokens;
  };
  const int shared = SharedOf(source);
  EXPECT_GT(shared, 0);
  EXPECT_EQ(cached(source, "one"), 0);
  EXPECT_EQ(cached(source, "one"), shared);
  EXPECT_EQ(cached(source, "other"), 0);
  EXPECT_EQ(cached(source, ""), 0);
  std::vector<TokenId> last = source, longer = source;
  last[static_cast<size_t>(shared) - 1] = TokenId(7);
  EXPECT_EQ(cached(last, "one"), 0);
  longer.insert(longer.begin(), TokenId(7));
  EXPECT_EQ(cached(longer, "one"), 0);
}

// A few sources, in any order, cancelled anywhere, with pages for less than all of them.
TEST_P(WholePromptEngine, SharedSourcesChangeNoBitWhateverEnds) {
  std::vector<std::vector<TokenId>> sources;
  for (const int tokens : {6, 16, 30, 41}) sources.push_back(Prompt(tokens, static_cast<uint64_t>(tokens)));
  std::vector<std::shared_ptr<Source>> alone;
  Make(1, 8, {.prefix_cache = false});
  for (const auto& source : sources) alone.push_back(Ask(source)), RunAll();
  Make(3, 11, {.prompt_lookup = true});
  std::mt19937_64 random(5);
  int cached = 0;
  for (int round = 0; round < 15; ++round) {
    std::vector<std::pair<size_t, std::shared_ptr<Source>>> asked;
    std::vector<RequestId> ids;
    for (int i = 0; i < 3; ++i) {
      const size_t which = random() % sources.size();
      asked.emplace_back(which, std::make_shared<Source>());
      ids.push_back(*engine_->Submit(RequestOf(sources[which], "", kNewTokens, ++asked_), asked.back().second));
      for (uint64_t step = random() % 3; step-- > 0;) engine_->RunOneStep();
    }
    if (random() % 2 == 0) engine_->Cancel(ids[random() % ids.size()], absl::CancelledError("no"));
    RunAll();
    for (const auto& [which, answer] : asked) {
      if (!answer->finish.status.ok()) continue;
      ExpectSameBits(answer->tokens, alone[which]->tokens, StrCat("round ", round, ", source ", which));
      EXPECT_EQ(answer->finish.choices_dropped, alone[which]->finish.choices_dropped);
      cached += answer->cached_tokens;
    }
  }
  EXPECT_GT(cached, 0);
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

}  // namespace whole_prompt_test
}  // namespace moed
