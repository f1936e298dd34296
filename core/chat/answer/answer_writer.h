// Where parsers write parts: what goes on is joined.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/chat/answer/answer_parser.h"

namespace moed::chat {

class AnswerWriter {
 public:
  // `calls`: how many of the answer have begun.
  AnswerWriter(std::vector<AnswerPart>& parts, int& calls) : parts_(parts), calls_(calls) {}

  void Reasoning(std::string_view text) { Append(AnswerPart::Kind::kReasoning, text); }
  void Text(std::string_view text) { Append(AnswerPart::Kind::kText, text); }
  void BeginCall(std::string name, std::string id) {
    parts_.push_back({AnswerPart::Kind::kToolCall, "", calls_++, std::move(name), std::move(id)});
  }
  // Of the call that began last.
  void Arguments(std::string_view json) { Append(AnswerPart::Kind::kToolCall, json); }
  int calls() const { return calls_; }
  // The name of the call that has begun since this writer was made, and as if it had not.
  const std::string& name() const { return parts_.back().name; }
  void TakeBack() {
    parts_.pop_back();
    --calls_;
  }

 private:
  void Append(AnswerPart::Kind kind, std::string_view text) {
    if (text.empty()) return;
    const int call = kind == AnswerPart::Kind::kToolCall ? calls_ - 1 : 0;
    if (parts_.empty() || parts_.back().kind != kind || parts_.back().call != call) parts_.push_back({kind, "", call, "", ""});
    parts_.back().text += text;
  }

  std::vector<AnswerPart>& parts_;
  int& calls_;
};

}  // namespace moed::chat
