// Answers that were cut off or damaged: nothing is lost, repeated or made up.
#include <gtest/gtest.h>

#include <random>

#include "core/base/utf8.h"
#include "tests/chat/answer/goldens.h"

namespace moed::chat {
namespace {

std::string Without(std::string text, std::string_view what) {
  if (what.empty()) return text;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at)) text.erase(at, what.size());
  return text;
}

// Without white space and what belongs to no part of the answer.
std::string Content(std::string text) {
  for (const std::string_view marker : {"<think>",
                                        "</think>",
                                        "[THINK]",
                                        "[/THINK]",
                                        "<|call|>",
                                        "<|return|>",
                                        "<think:opensource>",
                                        "</think:opensource>",
                                        "<|python_start|>",
                                        "<|START_THINKING|>",
                                        "<|END_THINKING|>",
                                        "<|START_TEXT|>",
                                        "<|END_TEXT|>",
                                        "<|START_RESPONSE|>",
                                        "<|END_RESPONSE|>",
                                        "<|think|>",
                                        "<|begin|>assistant<|content|>",
                                        "<|content|>",
                                        "<|end|>",
                                        "<response>",
                                        "</response>",
                                        "</tool_call>",
                                        "<answer>",
                                        "</answer>",
                                        "助手：",
                                        "<|channel>thought",
                                        "<channel|>"}) {
    text = Without(text, marker);
  }
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; });
  return text;
}

bool Calls(const std::vector<AnswerPart>& parts) {
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kToolCall) return true;
  }
  return false;
}

// Past the bytes of `text` in `answer`, in this order but not always together: headers of messages go. npos where they are not
// there.
size_t After(std::string_view text, std::string_view answer, size_t at) {
  for (const char c : text) {
    at = answer.find(c, at);
    if (at == std::string_view::npos) return at;
    ++at;
  }
  return at;
}

// What is left of a call that did not begin before the answer's end.
bool BeginsCall(std::string_view rest) {
  for (const std::string_view marker : {"<tool_call>",
                                        "<function=",
                                        "<minimax:tool_call>",
                                        "<｜DSML｜function_calls>",
                                        "<｜DSML｜tool_calls>",
                                        "<｜tool▁calls▁begin｜>",
                                        "<|tool_calls_section_begin|>",
                                        "[TOOL_CALLS]",
                                        "<|python_tag|>",
                                        "<tool_calls>",
                                        "<tool_calls:opensource>",
                                        "<|python_end|>",
                                        "<|tool_call_start|>",
                                        "<|START_ACTION|>",
                                        "<|tool_call>",
                                        "<|tool_calls|>",
                                        "<|begin|>assistant<|tool_calls|>",
                                        "<|tool_call|>",
                                        "[{\"name\":\"get_weather\"",
                                        "[{\"name\":\"clock\"",
                                        "{\"name\":\"get_weather\"",
                                        "{\"name\":\"clock\""}) {
    if (rest.starts_with(marker)) return true;
  }
  return false;
}

// The parts are in the answer in this order, and without calls they are all of it up to one that did not begin.
void ExpectFaithful(const Golden& golden, const std::string& answer) {
  const auto parts = Parsed(golden, answer);
  SCOPED_TRACE(std::string(golden.format) + ": " + answer + "\nsays " + Shown(parts));
  size_t at = 0;
  std::string all;
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::kToolCall) {
      continue;
    }
    at = After(part.text, answer, at);
    ASSERT_NE(at, std::string::npos) << part.text;
    all += part.text;
  }
  if (!Calls(parts) && golden.format != "harmony") {
    const std::string content = Content(answer), said = Content(all);
    EXPECT_EQ(content.substr(0, said.size()), said);
    EXPECT_TRUE(content.size() <= said.size() || BeginsCall(content.substr(said.size())));
  }
}

std::string Damaged(std::string answer, std::string_view other, std::mt19937& random) {
  const auto below = [&random](size_t n) { return std::uniform_int_distribution<size_t>(0, n == 0 ? 0 : n - 1)(random); };
  for (size_t changes = 1 + below(3); changes > 0; --changes) {
    const size_t at = below(answer.size() + 1);
    const size_t length = below(12);
    const size_t from = below(other.size());
    switch (below(4)) {
      case 0:
        answer.erase(at, length);
        break;
      case 1:
        answer.insert(at, answer.substr(at, length));
        break;
      case 2:
        answer.insert(at, other.substr(from, length * 3));
        break;
      default:
        if (at < answer.size()) answer[at] = "<>{}\"\\\n|=x"[below(10)];
    }
  }
  return answer;
}

TEST(DamagedAnswer, EveryBeginningIsFaithful) {
  for (const Golden& golden : Goldens()) {
    for (size_t length = 0; length < golden.answer.size(); ++length) {
      ExpectFaithful(golden, std::string(golden.answer.substr(0, length)));
    }
  }
}

TEST(DamagedAnswer, IsFaithfulAndTheSameHoweverItIsCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    for (const Golden& golden : Goldens()) {
      const Golden& other = Goldens()[std::uniform_int_distribution<size_t>(0, Goldens().size() - 1)(random)];
      const std::string answer = Damaged(std::string(golden.answer), other.answer, random);
      ExpectFaithful(golden, answer);
      const size_t cut = std::uniform_int_distribution<size_t>(0, answer.size())(random);
      const size_t second = std::uniform_int_distribution<size_t>(cut, answer.size())(random);
      ASSERT_EQ(Shown(Parsed(golden, answer, {cut, second})), Shown(Parsed(golden, answer))) << answer;
    }
  }
}

// A call whose arguments are whole has JSON of an object.
TEST(DamagedAnswer, WholeArgumentsAreJson) {
  for (const Golden& golden : Goldens()) {
    std::string arguments;
    for (const AnswerPart& part : Parsed(golden, golden.answer)) {
      if (part.kind == AnswerPart::Kind::kToolCall) arguments = part.text;
    }
    if (golden.says.find("oops") != std::string_view::npos || golden.says.find("hm<") != std::string_view::npos) continue;
    if (arguments.empty()) continue;
    EXPECT_TRUE(ValueFromJson(arguments).ok()) << arguments;
  }
}

TEST(DamagedAnswer, PartsAreWholeUtf8AfterEveryPiece) {
  for (const Golden& golden : Goldens()) {
    const auto parser = FormatNamed(golden.format).make({golden.reasoning_open, Tools()});
    std::vector<AnswerPart> parts;
    for (size_t at = 0; at < golden.answer.size();) {
      size_t end = at + 1;
      while (end < golden.answer.size() && (golden.answer[end] & 0xc0) == 0x80) ++end;
      parser->Add(golden.answer.substr(at, end - at), parts);
      at = end;
      for (const AnswerPart& part : parts) ASSERT_TRUE(IsValidUtf8(part.text)) << golden.answer;
    }
  }
}

}  // namespace
}  // namespace moed::chat
