// What templates make of an answer, parsed again. A line of standard input is a JSON object with "file", the template's path,
// "asked" and "answered": its variables before the assistant's message, with add_generation_prompt, and with that message. A line
// of standard output has "format", "reasoning", "text", "calls" and "held_calls", those that a mask lets through, or "error".
#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "core/base/check.h"
#include "core/chat/answer/answer_format.h"
#include "core/chat/json.h"
#include "core/chat/template.h"
#include "core/grammar/grammar.h"
#include "core/grammar/matcher.h"
#include "nlohmann/json.hpp"

namespace moed::chat {
namespace {

using namespace std::literals;  // NOLINT

// A template that writes no reasoning ends what its prompts have opened.
bool Opens(const AnswerFormat& format, std::string_view prompt, std::string_view answer) {
  return OpensReasoning(format, prompt) || answer.substr(0, 8) == "</think>";
}

// How many bytes of the answer a mask lets through that holds its calls to the tools' schemas, up to where it may end.
size_t Held(const AnswerFormat& format, const nlohmann::ordered_json& tools, bool open, std::string_view answer) {
  static const grammar::VocabularyTrie kNoTokens(std::vector<grammar::VocabularyTrie::Token>(), 1);
  AnswerRules rules;
  rules.reasoning_open = open;
  for (const auto& tool : tools) {
    const auto& parameters = tool["function"]["parameters"];
    const bool named = parameters.contains("properties") && !parameters["properties"].empty();
    rules.tools.push_back({"", tool["function"]["name"], named ? std::make_shared<grammar::Json>(parameters) : nullptr});
  }
  const auto syntax = format.hold(rules);
  MOED_CHECK(syntax.ok());
  grammar::Matcher matcher(*grammar::Grammar::FromSyntax(*syntax, kNoTokens), kNoTokens, 4 << 20);
  size_t held = 0;
  for (size_t i = 0; i < answer.size() && matcher.Accept(answer.substr(i, 1)).ok(); ++i) {
    if (matcher.MayEnd()) held = i + 1;
  }
  return held;
}

nlohmann::json Parsed(const AnswerFormat& format, std::string_view prompt, std::string_view answer, const Value& tools) {
  const auto parser = format.make({Opens(format, prompt, answer), tools});
  std::vector<AnswerPart> parts;
  parser->Add(answer, parts);
  parser->End(parts);
  std::string reasoning, text;
  nlohmann::json calls = nlohmann::json::array();
  for (const AnswerPart& part : parts) {
    if (!part.name.empty()) calls.push_back({{"name", part.name}, {"arguments", ""}});
    if (part.kind == AnswerPart::Kind::kToolCall) {
      auto& arguments = calls.back()["arguments"];
      arguments = arguments.get<std::string>() + part.text;
    } else {
      (part.kind == AnswerPart::Kind::kText ? text : reasoning) += part.text;
    }
  }
  return {{"format", format.name}, {"reasoning", reasoning}, {"text", text}, {"calls", calls}, {"answer", answer}};
}

nlohmann::json Outcome(const Value& one, const nlohmann::ordered_json& tools) {
  std::ostringstream source;
  source << std::ifstream(one.dict().Find("file"sv)->text(), std::ios::binary).rdbuf();
  const auto parsed = Template::Parse(source.str());
  if (!parsed.ok()) return {{"error", std::string(parsed.status().message())}};
  const Value& answered = *one.dict().Find("answered"sv);
  const auto asked = parsed->Render(*one.dict().Find("asked"sv));
  const auto rendered = parsed->Render(answered);
  if (!asked.ok() || !rendered.ok()) return {{"error", std::string((asked.ok() ? rendered : asked).status().message())}};
  const std::string_view prompt = asked->text, whole = rendered->text;
  // A template may write before an answer what it does not write at a prompt's end, or the other way round.
  const auto differ = std::mismatch(prompt.begin(), prompt.end(), whole.begin(), whole.end());
  std::string_view common = prompt.substr(0, differ.first - prompt.begin());
  const size_t marker = common.rfind('<');  // they may differ within one
  if (marker != std::string_view::npos && common.find('>', marker) == std::string_view::npos) common = common.substr(0, marker);
  const AnswerFormat& format = FormatOfTemplate(source.str());
  const std::string_view answer = whole.substr(common.size());
  const Value& given = *answered.dict().Find("tools"sv);
  nlohmann::json outcome = Parsed(format, common, answer, given);
  const std::string_view held = answer.substr(0, Held(format, tools, Opens(format, common, answer), answer));
  outcome["held_calls"] = Parsed(format, common, held, given)["calls"].size();
  return outcome;
}

}  // namespace
}  // namespace moed::chat

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto one = moed::chat::ValueFromJson(line);
    MOED_CHECK(one.ok());
    std::cout << moed::chat::Outcome(*one, nlohmann::ordered_json::parse(line)["answered"]["tools"]).dump() << "\n";
  }
}
