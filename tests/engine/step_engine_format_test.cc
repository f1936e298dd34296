// Answers that must follow a format.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "core/grammar/matcher_pool.h"
#include "tests/engine/engine_harness.h"

namespace moed {
namespace step_engine_format_test {

using grammar::TextFormat;

const TextFormat kRegex{TextFormat::Kind::kRegex, "[a-d]{3,9}( [e-h]+){2}x"};
const TextFormat kSchema{
    TextFormat::Kind::kJsonSchema,
    R"({"properties": {"a": {"enum": [1, "b"]}, "b": {"type": "string", "maxLength": 5}}, "required": ["a", "b"]})"};

std::shared_ptr<grammar::Matcher> MatcherOf(const TextFormat& format) {
  static auto& pool = *new grammar::MatcherPool(ByteTokenizer(), kVocabulary, 16 << 20);
  auto matcher = pool.Make(*grammar::SyntaxOf(format));
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  return matcher.ok() ? *matcher : nullptr;
}

EngineRequest FormatRequest(std::string_view prompt, const TextFormat& format, int new_tokens = 64) {
  EngineRequest request = GreedyRequest(prompt, new_tokens);
  request.stopping.ignore_eos = false;
  request.format = MatcherOf(format);
  return request;
}

TEST(StepEngineFormatTest, AnAnswerEndsWhereItsFormatSays) {
  Harness harness;
  for (const char* prompt : {"p", "another prompt", "q"}) {
    EngineRequest request = FormatRequest(prompt, kSchema);
    request.sampling.temperature = 1;
    request.sampling.seed = 5;
    const auto recorder = harness.Submit(request);
    harness.RunAll();
    ASSERT_TRUE(recorder->finish->status.ok()) << recorder->finish->status;
    if (recorder->finish->reason == FinishReason::kLength) continue;  // white space may fill it
    EXPECT_EQ(recorder->finish->stop_token, kEos);
    const auto json = nlohmann::json::parse(recorder->text, nullptr, false);
    EXPECT_TRUE(json.is_object() && json.contains("a") && json["b"].is_string()) << recorder->text;
  }
  harness.ExpectClean();
}

TEST(StepEngineFormatTest, TokensDoNotDependOnBatchOrChunks) {
  std::set<std::string> texts;
  for (const int step_tokens : {4, 16, 64}) {
    for (const int others : {0, 3}) {
      HarnessOptions options;
      options.engine.max_step_tokens = step_tokens;
      options.pages = others > 0 ? 12 : 64;  // requests are preempted, and computed again
      Harness harness(options);
      for (int i = 0; i < others; ++i) harness.Submit(GreedyRequest(std::string(20, static_cast<char>('a' + i)), 40));
      const auto recorder = harness.Submit(FormatRequest("a prompt of some length", kRegex));
      harness.RunAll();
      ASSERT_TRUE(recorder->finish->status.ok()) << recorder->finish->status;
      texts.insert(recorder->text);
    }
  }
  ASSERT_EQ(texts.size(), 1u);
  EXPECT_TRUE(std::regex_match(*texts.begin(), std::regex("[a-d]{3,9}( [e-h]*){0,2}x?"))) << *texts.begin();
}

TEST(StepEngineFormatTest, LogprobsAreOfTheModelsOwnDistribution) {
  Harness harness;
  harness.model->logits = [](std::span<const TokenId>, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0f);
  };
  EngineRequest request = FormatRequest("p", {TextFormat::Kind::kRegex, "zz"});
  request.logprobs = true;
  const auto recorder = harness.Submit(request);
  harness.RunAll();
  EXPECT_EQ(recorder->text, "zz");
  for (const TokenInfo& info : recorder->infos) EXPECT_NEAR(info.logprob, -std::log(kVocabulary), 1e-4);
}

TEST(StepEngineFormatTest, CutShortItIsABeginning) {
  Harness harness;
  const auto recorder = harness.Submit(FormatRequest("p", {TextFormat::Kind::kRegex, "abcdefgh"}, 3));
  harness.RunAll();
  EXPECT_EQ(recorder->text, "abc");
  EXPECT_EQ(recorder->finish->reason, FinishReason::kLength);
}

TEST(StepEngineFormatTest, WithoutATokenThatEndsAnswersItEndsWhereNothingMayFollow) {
  HarnessOptions options;
  options.eos = {};
  Harness harness(options);
  EngineRequest request = FormatRequest("p", {TextFormat::Kind::kRegex, "abcdefgh"});
  request.stopping.stop_strings = {"hi"};  // whose beginning is held back until then
  const auto recorder = harness.Submit(request);
  harness.RunAll();
  ASSERT_TRUE(recorder->finish->status.ok()) << recorder->finish->status;
  EXPECT_EQ(recorder->text, "abcdefgh");
  EXPECT_EQ(recorder->finish->reason, FinishReason::kStop);
  harness.ExpectClean();
}

// What ends answers is avoided where the text may not end. Where the format allows nothing else it is text.
TEST(StepEngineFormatTest, NothingEndsItBeforeItIsWhole) {
  Harness harness;
  for (const auto& [regex, text] : {std::pair("(abc){3}", "abcabcabc"), std::pair("[ab]{6}c", "aaaaaac")}) {
    EngineRequest request = FormatRequest("p", {TextFormat::Kind::kRegex, regex});
    request.stopping.stop_tokens = Bytes("b");
    const auto recorder = harness.Submit(request);
    harness.RunAll();
    ASSERT_TRUE(recorder->finish->status.ok()) << recorder->finish->status;
    EXPECT_EQ(recorder->text, text);
    EXPECT_EQ(recorder->finish->reason, FinishReason::kStop);
  }
}

TEST(StepEngineFormatTest, WhatDoesNotGoWithItIsRefused) {
  Harness harness;
  EngineRequest ignoring = FormatRequest("p", kRegex);
  ignoring.stopping.ignore_eos = true;
  EXPECT_EQ(harness.SubmitError(ignoring).message(), "stopping.ignore_eos: does not go with an answer that is held to a form");
  EngineRequest longer = FormatRequest("p", kRegex);
  longer.stopping.min_new_tokens = 2;
  EXPECT_EQ(harness.SubmitError(longer).message(),
            "stopping.min_new_tokens: 2 does not go with an answer that is held to a form");
}

}  // namespace step_engine_format_test
}  // namespace moed
