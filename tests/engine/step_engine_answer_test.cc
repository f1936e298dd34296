// What an answer holds and what ends it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "core/engine/logprobs.h"
#include "tests/engine/engine_harness.h"

namespace moed {
namespace step_engine_answer_test {

// The model says `answer` after a prompt of `prompt_tokens`, whatever the prompt is.
void MakeSay(Harness& harness, int prompt_tokens, std::vector<TokenId> answer) {
  harness.model->logits = [=](std::span<const TokenId> history, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[answer[(history.size() - prompt_tokens) % answer.size()].value()] = 10;
  };
}

TEST(StepEngineAnswerTest, EndOfSequenceIsCountedButNotShown) {
  Harness harness;
  auto answer = Bytes("ab");
  answer.push_back(kEos);
  MakeSay(harness, 1, answer);
  EngineRequest request = GreedyRequest("p", 10);
  request.stopping.ignore_eos = false;
  auto recorder = harness.Submit(request);
  harness.RunAll();
  EXPECT_EQ(recorder->text, "ab");
  EXPECT_EQ(recorder->tokens(), Bytes("ab"));
  EXPECT_EQ(recorder->finish->reason, FinishReason::kStop);
  EXPECT_EQ(recorder->finish->stop_token, kEos);
  EXPECT_EQ(recorder->finish->completion_tokens, 3);
  harness.ExpectClean();
}

TEST(StepEngineAnswerTest, IgnoredEndOfSequenceIsATokenLikeOthers) {
  Harness harness;
  auto answer = Bytes("ab");
  answer.push_back(kEos);
  MakeSay(harness, 1, answer);
  for (bool skip : {true, false}) {
    EngineRequest request = GreedyRequest("p", 7);
    request.skip_special_tokens = skip;
    auto recorder = harness.Submit(request);
    harness.RunAll();
    EXPECT_EQ(recorder->text, skip ? "ababa" : "ab<eos>ab<eos>a");
    EXPECT_EQ(recorder->tokens().size(), 7u);
    EXPECT_EQ(recorder->finish->reason, FinishReason::kLength);
  }
}

TEST(StepEngineAnswerTest, StopTokens) {
  Harness harness;
  MakeSay(harness, 1, Bytes("hello"));
  EngineRequest request = GreedyRequest("p", 10);
  request.stopping.stop_tokens = {TokenId('x'), TokenId('l')};
  auto recorder = harness.Submit(request);
  harness.RunAll();
  EXPECT_EQ(recorder->text, "he");
  EXPECT_EQ(recorder->finish->reason, FinishReason::kStop);
  EXPECT_EQ(recorder->finish->stop_token, TokenId('l'));
}

TEST(StepEngineAnswerTest, AnAskedForStopTokenEndsEvenWhenEndOfSequenceIsIgnored) {
  Harness harness;
  MakeSay(harness, 1, {TokenId('a'), kEos});
  EngineRequest request = GreedyRequest("p", 10);
  request.stopping.stop_tokens = {kEos};
  auto recorder = harness.Submit(request);
  harness.RunAll();
  EXPECT_EQ(recorder->text, "a");
  EXPECT_EQ(recorder->finish->stop_token, kEos);
}

TEST(StepEngineAnswerTest, NoEndBeforeTheLeastNumberOfTokens) {
  Harness harness;
  harness.model->logits = [](std::span<const TokenId>, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[kEos.value()] = 10;
    logits['s'] = 9;  // a stop token
    logits['a'] = 8;
  };
  for (int least : {0, 1, 5, 12}) {
    EngineRequest request = GreedyRequest("p", 12);
    request.stopping.ignore_eos = false;
    request.stopping.stop_tokens = {TokenId('s')};
    request.stopping.min_new_tokens = least;
    auto recorder = harness.Submit(request);
    harness.RunAll();
    EXPECT_EQ(recorder->text, std::string(least, 'a'));
    EXPECT_EQ(recorder->finish->reason, least == 12 ? FinishReason::kLength : FinishReason::kStop);
  }
}

TEST(StepEngineAnswerTest, NoStopStringWithinTheLeastNumberOfTokens) {
  Harness harness;
  harness.model->logits = [](std::span<const TokenId>, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits['a'] = 8;
  };
  for (int least : {0, 1, 5}) {
    EngineRequest request = GreedyRequest("p", 12);
    request.stopping.stop_strings = {"a"};
    request.stopping.min_new_tokens = least;
    auto recorder = harness.Submit(request);
    harness.RunAll();
    EXPECT_EQ(recorder->text, std::string(least, 'a'));
    EXPECT_EQ(recorder->finish->completion_tokens, least + 1);
    EXPECT_EQ(recorder->finish->reason, FinishReason::kStopString);
  }
}

TEST(StepEngineAnswerTest, StopStringsAcrossTokens) {
  struct Case {
    std::vector<std::string> stops;
    bool include;
    std::string text;
    std::string match;
  };
  const Case cases[] = {
      {{"END"}, false, "caf\xc3\xa9 one ", "END"},
      {{"END"}, true, "caf\xc3\xa9 one END", "END"},
      {{"\xc3\xa9 o"}, false, "caf", "\xc3\xa9 o"},
      {{"zzz", "one E"}, false, "caf\xc3\xa9 ", "one E"},
      {{"c"}, false, "", "c"},
  };
  for (const Case& c : cases) {
    Harness harness;
    MakeSay(harness, 1, Bytes("caf\xc3\xa9 one END two"));
    EngineRequest request = GreedyRequest("p", 60);
    request.stopping.stop_strings = c.stops;
    request.stopping.include_stop_string = c.include;
    auto recorder = harness.Submit(request);
    harness.RunAll();
    EXPECT_EQ(recorder->text, c.text);
    EXPECT_EQ(recorder->finish->reason, FinishReason::kStopString);
    EXPECT_EQ(recorder->finish->stop_string, c.match);
    EXPECT_EQ(recorder->finish->completion_tokens, static_cast<int>(recorder->tokens().size()));
  }
}

TEST(StepEngineAnswerTest, WhatIsHeldBackComesWithTheLastToken) {
  Harness harness;
  MakeSay(harness, 1, Bytes("abEN"));
  EngineRequest request = GreedyRequest("p", 4);
  request.stopping.stop_strings = {"END"};
  auto recorder = harness.Submit(request);
  harness.RunAll();
  EXPECT_THAT(recorder->pieces, testing::ElementsAre("a", "b", "", "EN"));
  EXPECT_EQ(recorder->finish->reason, FinishReason::kLength);
}

TEST(StepEngineAnswerTest, WholeCharactersOnly) {
  const std::string text = "\xf0\x9f\x98\x80\xc3\xa9";
  for (int tokens = 1; tokens <= 6; ++tokens) {
    Harness harness;
    MakeSay(harness, 1, Bytes(text));
    auto recorder = harness.Submit(GreedyRequest("p", tokens));
    harness.RunAll();
    const std::string cut = "\xef\xbf\xbd";  // what a character that never became whole is shown as
    EXPECT_EQ(recorder->text, tokens < 4 ? cut : tokens == 4 ? text.substr(0, 4) : tokens == 5 ? text.substr(0, 4) + cut : text);
    EXPECT_EQ(recorder->infos.size(), static_cast<size_t>(tokens));
    for (int i = 0; i + 1 < std::min(tokens, 4); ++i) EXPECT_EQ(recorder->pieces[i], "");
  }
}

TEST(StepEngineAnswerTest, OneDeltaForEachStepWithATokenInIt) {
  Harness harness;
  auto recorder = harness.Submit(GreedyRequest("p", 9));
  harness.RunAll();
  EXPECT_EQ(recorder->pieces.size(), 9u);
}

TEST(StepEngineAnswerTest, SameSeedSameTokensInAnyBatch) {
  EngineRequest request = GreedyRequest("once upon a time", 30);
  request.sampling.temperature = 2;
  request.sampling.seed = 77;
  std::vector<TokenId> alone;
  for (int others = 0; others <= 3; ++others) {
    HarnessOptions options;
    options.pages = others == 3 ? 7 : 64;
    Harness harness(options);
    for (int i = 0; i < others; ++i) harness.Submit(GreedyRequest("other prompt", 40));
    harness.engine->RunOneStep();
    auto recorder = harness.Submit(request);
    harness.RunAll();
    if (others == 0) alone = recorder->tokens();
    EXPECT_EQ(recorder->tokens(), alone);
    EXPECT_EQ(recorder->finish->seed, 77u);
  }
  EngineRequest other = request;
  other.sampling.seed = 78;
  Harness harness;
  auto recorder = harness.Submit(other);
  harness.RunAll();
  EXPECT_NE(recorder->tokens(), alone);
}

TEST(StepEngineAnswerTest, ADrawnSeedIsReportedAndRepeats) {
  Harness harness;
  EngineRequest request = GreedyRequest("once", 20);
  request.sampling.temperature = 2;
  auto first = harness.Submit(request);
  harness.RunAll();
  request.sampling.seed = first->finish->seed;
  auto second = harness.Submit(request);
  harness.RunAll();
  EXPECT_EQ(first->tokens(), second->tokens());
  request.sampling.seed.reset();
  auto third = harness.Submit(request);
  harness.RunAll();
  EXPECT_NE(third->finish->seed, first->finish->seed);
}

TEST(StepEngineAnswerTest, LogprobsAreOfTheModelsOwnDistribution) {
  Harness harness;
  EngineRequest request = GreedyRequest("prompt", 6);
  request.sampling.temperature = 3;
  request.sampling.seed = 5;
  request.sampling.logit_bias = {{TokenId('a'), -100.0f}};
  request.logprobs = true;
  request.top_logprobs = 4;
  auto recorder = harness.Submit(request);
  harness.RunAll();
  std::vector<TokenId> history = request.prompt;
  std::vector<float> logits(kVocabulary);
  ASSERT_EQ(recorder->infos.size(), 6u);
  for (const TokenInfo& info : recorder->infos) {
    FakeLogits(history, logits);
    const double normalizer = LogNormalizer(logits);
    EXPECT_FLOAT_EQ(info.logprob, static_cast<float>(logits[info.token.value()] - normalizer));
    EXPECT_EQ(info.top, TopLogprobs(logits, normalizer, 4));
    history.push_back(info.token);
  }
}

TEST(StepEngineAnswerTest, WithoutAskingThereAreNoLogprobs) {
  Harness harness;
  auto recorder = harness.Submit(GreedyRequest("prompt", 3));
  harness.RunAll();
  for (const TokenInfo& info : recorder->infos) {
    EXPECT_EQ(info.logprob, 0);
    EXPECT_TRUE(info.top.empty());
  }
}

std::vector<float> NaiveScore(const std::vector<TokenId>& prompt) {
  std::vector<float> logprobs, logits(kVocabulary);
  for (size_t i = 1; i < prompt.size(); ++i) {
    FakeLogits(std::span(prompt).first(i), logits);
    logprobs.push_back(static_cast<float>(logits[prompt[i].value()] - LogNormalizer(logits)));
  }
  return logprobs;
}

TEST(StepEngineAnswerTest, ScoresEveryTokenButTheFirst) {
  for (int step_tokens : {4, 5, 16, 200}) {
    HarnessOptions options;
    options.engine.max_step_tokens = step_tokens;
    options.pages = 8;  // others force preemption
    Harness harness(options);
    std::vector<std::pair<EngineRequest, std::shared_ptr<Recorder>>> scores;
    for (int length : {1, 2, 15, 16, 17, 40, 96}) {
      harness.Submit(GreedyRequest("generate beside", 20));
      EngineRequest request = GreedyRequest(std::string("abcdefgh ").append(length, 'c').substr(0, length), 1);
      request.kind = RequestKind::kScore;
      scores.emplace_back(request, harness.Submit(request));
    }
    harness.RunAll();
    for (const auto& [request, recorder] : scores) {
      ASSERT_TRUE(recorder->finish->status.ok());
      EXPECT_EQ(recorder->finish->prompt_logprobs, NaiveScore(request.prompt));
      EXPECT_TRUE(recorder->infos.empty());
      EXPECT_EQ(recorder->finish->completion_tokens, 0);
      EXPECT_EQ(recorder->prompt_tokens, static_cast<int>(request.prompt.size()));
    }
    harness.ExpectClean();
  }
}

TEST(StepEngineAnswerTest, ScoresWithTheLikeliestTokensAtEachPosition) {
  for (int step_tokens : {4, 200}) {
    HarnessOptions options;
    options.engine.max_step_tokens = step_tokens;
    options.pages = 8;  // the answers beside force preemption
    Harness harness(options);
    harness.Submit(GreedyRequest("generate beside", 40));
    harness.Submit(GreedyRequest("and once more", 40));
    EngineRequest request = GreedyRequest(std::string(60, 'c'), 1);
    request.kind = RequestKind::kScore;
    request.top_logprobs = 3;
    const auto recorder = harness.Submit(request);
    harness.RunAll();
    ASSERT_TRUE(recorder->finish->status.ok());
    EXPECT_EQ(recorder->finish->prompt_logprobs, NaiveScore(request.prompt));
    ASSERT_EQ(recorder->finish->prompt_top.size(), request.prompt.size() - 1);
    std::vector<float> logits(kVocabulary);
    for (size_t i = 1; i < request.prompt.size(); ++i) {
      FakeLogits(std::span(request.prompt).first(i), logits);
      EXPECT_EQ(recorder->finish->prompt_top[i - 1], TopLogprobs(logits, LogNormalizer(logits), 3));
    }
    harness.ExpectClean();
  }
}

// StepEngine::MemoryBytes counts four bytes for each of its tokens.
TEST(StepEngineAnswerTest, WhatIsKnownOfAScoredTextHasNoRoomToGrow) {
  struct Observer final : RequestObserver {
    void OnStarted(int, int) override {}
    void OnTokens(TokenDelta) override {}
    void OnFinish(const FinishInfo& finish) override { room = finish.prompt_logprobs.capacity(); }
    size_t room = 0;
  };
  Harness harness;
  EngineRequest request = GreedyRequest(std::string(70, 'c'), 1);
  request.kind = RequestKind::kScore;
  const size_t tokens = request.prompt.size();
  const auto observer = std::make_shared<Observer>();
  ASSERT_TRUE(harness.engine->Submit(std::move(request), observer).ok());
  harness.RunAll();
  EXPECT_GE(observer->room, tokens - 1);
  EXPECT_LE(observer->room, tokens);
}

TEST(StepEngineAnswerTest, APromptIsScoredOnTheWayToItsAnswer) {
  int preemptions = 0;
  for (int step_tokens : {4, 5, 16, 200}) {
    HarnessOptions options;
    options.engine.max_step_tokens = step_tokens;
    options.pages = 8;  // others force preemption, in prompts and in answers
    Harness harness(options);
    std::vector<std::pair<EngineRequest, std::shared_ptr<Recorder>>> asked;
    for (int length : {1, 2, 15, 16, 17, 40, 60}) {
      harness.Submit(GreedyRequest("generate beside", 20));
      EngineRequest request = GreedyRequest(std::string("abcdefgh ").append(length, 'c').substr(0, length), 20);
      request.prompt_logprobs = request.logprobs = true;
      request.top_logprobs = 3;
      asked.emplace_back(request, harness.Submit(request));
    }
    harness.RunAll();
    for (const auto& [request, recorder] : asked) {
      ASSERT_TRUE(recorder->finish->status.ok());
      EXPECT_EQ(recorder->finish->prompt_logprobs, NaiveScore(request.prompt));
      EXPECT_EQ(recorder->finish->prompt_top.size(), request.prompt.size() - 1);
      ExpectAnswer(*recorder, Reference(request));
      preemptions += recorder->finish->preemptions;
    }
    harness.ExpectClean();
  }
  EXPECT_GT(preemptions, 0);
}

TEST(StepEngineAnswerTest, ScoringInStepsOfOneTokenMeetsWhatAnswersMeet) {
  for (int step_tokens : {1, 8}) {
    HarnessOptions options;
    options.engine.max_running = 1;
    options.engine.max_step_tokens = step_tokens;
    Harness harness(options);
    std::set<Phase> seen;
    harness.model->on_forward = [&](std::span<SequenceChunk> step) { seen.insert(step[0].phase); };
    EngineRequest request = GreedyRequest("seventeen letters", 1);  // its last step has one token whatever their size
    request.kind = RequestKind::kScore;
    const auto recorder = harness.Submit(request);
    harness.RunAll();
    EXPECT_EQ(recorder->finish->prompt_logprobs, NaiveScore(request.prompt));
    EXPECT_EQ(seen, std::set<Phase>{step_tokens == 1 ? Phase::kDecode : Phase::kPrefill});
  }
}

TEST(StepEngineAnswerTest, LogitsThatAreNoNumbersFailTheirRequestOnly) {
  for (RequestKind kind : {RequestKind::kGenerate, RequestKind::kScore}) {
    Harness harness;
    harness.model->logits = [](std::span<const TokenId> history, std::span<float> logits) {
      FakeLogits(history, logits);
      if (history[0] == TokenId('!')) logits[3] = std::nanf("");
    };
    EngineRequest bad_request = GreedyRequest("!bad", 5);
    bad_request.kind = kind;
    auto bad = harness.Submit(bad_request);
    const EngineRequest good_request = GreedyRequest("good", 5);
    auto good = harness.Submit(good_request);
    harness.RunAll();
    EXPECT_EQ(bad->finish->status.code(), absl::StatusCode::kInternal);
    EXPECT_TRUE(bad->finish->prompt_logprobs.empty());
    ExpectAnswer(*good, Reference(good_request));
    harness.ExpectClean();
  }
}

}  // namespace step_engine_answer_test
}  // namespace moed
