#include "server/rpc/chat_answer.h"

#include <random>
#include <string_view>

namespace moed {
namespace {

using chat::AnswerPart;

// As Mistral's templates demand it; others take any.
std::string MakeUpCallId() {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr size_t kLength = 9;
  thread_local std::mt19937_64 random(std::random_device{}());
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id;
  while (id.size() < kLength) id += kLetters[letter(random)];
  return id;
}

}  // namespace

void ChatAnswer::Add(std::string_view text, size_t tokens, Encoded& message) {
  parser_->Add(text, parts_);
  tokens_ += tokens;
  AddParts(message);
}

void ChatAnswer::End(bool cut_off, Encoded& message) {
  cut_off ? parser_->CutOff(parts_) : parser_->End(parts_);
  AddParts(message);
  if (whole_) AddFields(kept_, message);
}

void ChatAnswer::AddParts(Encoded& message) {
  moe::v1::ChatResponse calls;
  if (!parts_.empty()) {
    if (parts_.front().kind == AnswerPart::Kind::kReasoning) reasoning_tokens_ += tokens_;
    tokens_ = 0;
  }
  for (AnswerPart& part : parts_) {
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        message.text += part.text;
        break;
      case AnswerPart::Kind::kReasoning:
        message.reasoning += part.text;
        break;
      case AnswerPart::Kind::kToolCall:
        DeltaOf(part, whole_ ? kept_ : calls).mutable_arguments()->append(part.text);
        if (whole_) kept_bytes_ += part.text.size();
    }
  }
  parts_.clear();
  AddFields(calls, message);
}

// A whole answer has one for each call, a stream one for each piece.
moe::v1::ToolCallDelta& ChatAnswer::DeltaOf(const AnswerPart& part, moe::v1::ChatResponse& calls) {
  called_ = true;
  const int known = calls.tool_calls_size();
  if (known > 0 && calls.tool_calls(known - 1).index() == part.call) return *calls.mutable_tool_calls(known - 1);
  moe::v1::ToolCallDelta& delta = *calls.add_tool_calls();
  delta.set_index(part.call);
  if (part.name.empty()) return delta;
  delta.set_name(part.name);
  delta.set_id(part.id.empty() ? MakeUpCallId() : part.id);
  if (whole_) kept_bytes_ += delta.ByteSizeLong();
  return delta;
}

}  // namespace moed
