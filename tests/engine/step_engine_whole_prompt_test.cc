// Requests whose prompt is the whole conversation: what the session has in common with it is not computed again.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/engine/engine_harness.h"

namespace moed {
namespace step_engine_whole_prompt_test {

EngineRequest Whole(std::vector<TokenId> prompt, int new_tokens, const std::string& session = "s") {
  EngineRequest request = GreedyRequest("", new_tokens);
  request.prompt = std::move(prompt);
  request.session_id = session;
  request.whole_prompt = true;
  return request;
}

std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(StepEngineWholePromptTest, TheCommonBeginningIsNotComputedAgain) {
  Harness harness;
  const std::vector<TokenId> hello = Bytes("hello there, how are you");
  const auto ask = [&](const std::vector<TokenId>& prompt, int cached) {
    const EngineRequest request = Whole(prompt, 4);
    auto recorder = harness.Submit(request);
    harness.RunAll();
    ExpectAnswer(*recorder, Reference(request));
    EXPECT_EQ(recorder->prompt_tokens, static_cast<int>(prompt.size()));
    EXPECT_EQ(recorder->cached_tokens, cached);
    EXPECT_EQ(recorder->finish->session_tokens, static_cast<int>(prompt.size()) + 4);
    return Joined(prompt, recorder->tokens());
  };
  const auto first = ask(hello, 0);
  const auto second = ask(Joined(first, Bytes(" and you")), 27);  // the last token of the answer is not computed yet
  ask(second, static_cast<int>(second.size()) - 1);               // it is by now, but the prompt's last one always is
  ask(hello, 23);                                                 // shorter than what the session holds
  ask(Bytes("hello world"), 6);
  ask(Bytes("other"), 0);
  ask(Bytes("o"), 0);
  harness.ExpectClean();
}

TEST(StepEngineWholePromptTest, WhatFailsLeavesTheSessionAsItWas) {
  for (const int steps : {0, 1, 2, 5}) {
    Harness harness;
    const EngineRequest first = Whole(Bytes("hello there, how are you"), 6);
    const auto before = harness.Submit(first);
    harness.RunAll();
    auto recorder = harness.Submit(Whole(Joined(Bytes("hello the"), std::vector<TokenId>(40, TokenId('x'))), 20));
    for (int step = 0; step < steps; ++step) harness.engine->RunOneStep();
    harness.model->fails = [](const SequenceChunk&) { return absl::DataLossError("bad expert"); };
    harness.RunAll();
    EXPECT_FALSE(recorder->finish->status.ok());
    EXPECT_EQ(recorder->finish->session_tokens, 0);
    harness.model->fails = nullptr;
    EngineRequest more = GreedyRequest(" more", 5);
    more.session_id = "s";
    more.expected_tokens = before->finish->session_tokens;
    const auto after = harness.Submit(more);
    harness.RunAll();
    ExpectAnswer(*after, Reference(more, Joined(first.prompt, before->tokens())));
    harness.ExpectClean();
  }
}

TEST(StepEngineWholePromptTest, TheWholePromptIsHeldAgainstTheContextAndNotTheSession) {
  Harness harness;
  harness.Submit(Whole(std::vector<TokenId>(80, TokenId('a')), 10));
  harness.RunAll();
  const EngineRequest request = Whole(std::vector<TokenId>(90, TokenId('a')), 10);
  auto recorder = harness.Submit(request);
  harness.RunAll();
  ExpectAnswer(*recorder, Reference(request));
  EXPECT_EQ(recorder->finish->reason, FinishReason::kContext);
  EXPECT_FALSE(harness.SubmitError(Whole(std::vector<TokenId>(96, TokenId('a')), 1)).ok());
  harness.ExpectClean();
}

// Conversations that are cut anywhere, with few pages and with a window whose ring does not reach back far: the same answers.
TEST(StepEngineWholePromptTest, AnyEditGivesWhatARequestOfItsOwnGives) {
  for (const int window : {0, 20}) {
    HarnessOptions options;
    options.pages = 9;
    options.window = window;
    options.slots = 3;
    Harness harness(options);
    std::mt19937_64 random(11);
    std::vector<std::vector<TokenId>> histories(3);
    int cached = 0;
    for (int round = 0; round < 60; ++round) {
      std::vector<std::pair<EngineRequest, std::shared_ptr<Recorder>>> turns;
      for (size_t i = 0; i < histories.size(); ++i) {
        std::vector<TokenId>& history = histories[i];
        if (random() % 3 == 0 || history.size() > 70) history.resize(random() % (history.size() / (1 + random() % 4) + 1));
        const size_t added = 1 + random() % 12;
        for (size_t k = 0; k < added; ++k) history.push_back(TokenId('a' + static_cast<int>(random() % 8)));
        const EngineRequest request = Whole(history, 1 + static_cast<int>(random() % 6), std::to_string(i));
        turns.emplace_back(request, harness.Submit(request));
      }
      harness.RunAll();
      for (size_t i = 0; i < histories.size(); ++i) {
        ExpectAnswer(*turns[i].second, Reference(turns[i].first));
        cached += turns[i].second->cached_tokens;
        histories[i] = Joined(histories[i], turns[i].second->tokens());
      }
    }
    EXPECT_GT(cached, 500) << "window " << window;
    harness.ExpectClean();
  }
}

}  // namespace step_engine_whole_prompt_test
}  // namespace moed
