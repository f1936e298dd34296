// What templates make of an answer, parsed again. A line of standard input is a JSON object with "file", the template's path,
// "asked" and "answered": its variables before the assistant's message, with add_generation_prompt, and with that message. A line
// of standard output has "format", "reasoning", "text" and "calls", or "error".
#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "core/base/check.h"
#include "core/chat/answer/answer_format.h"
#include "core/chat/json.h"
#include "core/chat/template.h"
#include "nlohmann/json.hpp"

namespace moed::chat {
namespace {

using namespace std::literals;  // NOLINT

nlohmann::json Parsed(const AnswerFormat& format, std::string_view prompt, std::string_view answer, const Value& tools) {
  // A template that writes no reasoning ends what its prompts have opened.
  const bool open = OpensReasoning(format, prompt) || answer.substr(0, 8) == "</think>";
  const auto parser = format.make({open, tools});
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

nlohmann::json Outcome(const Value& one) {
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
  return Parsed(FormatOfTemplate(source.str()), common, whole.substr(common.size()), *answered.dict().Find("tools"sv));
}

}  // namespace
}  // namespace moed::chat

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto one = moed::chat::ValueFromJson(line);
    MOED_CHECK(one.ok());
    std::cout << moed::chat::Outcome(*one).dump() << "\n";
  }
}
