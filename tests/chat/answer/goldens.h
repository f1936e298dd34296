// Answers as models of each format write them, and what they say. The tests of this folder share them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/chat/answer/answer_format.h"
#include "core/chat/json.h"

namespace moed::chat {

struct Golden {
  std::string_view format;
  std::string_view answer;
  std::string_view says;  // as Shown shows it
  bool reasoning_open = false;
};

// get_weather has a parameter of each type; clock has none.
inline Value Tools() {
  return *ValueFromJson(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
      "place": {"type": "string"}, "days": {"type": "integer"}, "where": {"type": "object"}, "ok": {"type": "boolean"},
      "list": {"type": "array"}, "maybe": {"anyOf": [{"type": "number"}, {"type": "null"}]}}}}},
    {"type": "function", "function": {"name": "clock"}}])");
}

inline const AnswerFormat& FormatNamed(std::string_view name) {
  for (const AnswerFormat& format : AnswerFormats()) {
    if (format.name == name) return format;
  }
  return AnswerFormats().back();
}

// "reasoning(..) text(..) call(name, id, arguments)"; the parts of a call need not follow each other.
inline std::string Shown(const std::vector<AnswerPart>& parts) {
  std::vector<std::string> shown;
  for (const AnswerPart& part : parts) {
    if (part.kind != AnswerPart::Kind::kToolCall) {
      shown.push_back((part.kind == AnswerPart::Kind::kText ? "text(" : "reasoning(") + part.text);
    } else if (!part.name.empty()) {
      shown.push_back("call(" + part.name + ", " + part.id + ", " + part.text);
    } else {
      shown.back() += part.text;
    }
  }
  std::string all;
  for (const std::string& one : shown) all += (all.empty() ? "" : " ") + one + ")";
  return all;
}

// Of the answer in pieces that end at `cuts`, ascending.
inline std::vector<AnswerPart> Parsed(const Golden& golden, std::string_view answer, const std::vector<size_t>& cuts = {}) {
  const auto parser = FormatNamed(golden.format).make({golden.reasoning_open, Tools()});
  std::vector<AnswerPart> parts;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parser->Add(answer.substr(begin, cut - begin), parts);
    begin = cut;
  }
  parser->Add(answer.substr(begin), parts);
  parser->End(parts);
  return parts;
}

const std::vector<Golden>& Goldens();

}  // namespace moed::chat
