// A model's answer on its way into ChatResponses: cut into reasoning, text and calls of tools.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/chat/answer/answer_parser.h"
#include "moe/v1/inference.pb.h"
#include "server/rpc/encoded.h"

namespace moed {

// One answer. Not synchronised.
class ChatAnswer {
 public:
  // `whole`: the calls are kept, each for one message at the end.
  ChatAnswer(std::unique_ptr<chat::AnswerParser> parser, bool whole) : parser_(std::move(parser)), whole_(whole) {}

  // What `tokens` tokens say.
  void Add(std::string_view text, size_t tokens, Encoded& message);
  // `cut_off`: by its length, wherever that was.
  void End(bool cut_off, Encoded& message);
  bool called() const { return called_; }  // a tool, once at least
  size_t reasoning_tokens() const { return reasoning_tokens_; }
  size_t kept_bytes() const { return kept_bytes_; }  // of calls

 private:
  void AddParts(Encoded& message);
  moe::v1::ToolCallDelta& DeltaOf(const chat::AnswerPart& part, moe::v1::ChatResponse& calls);

  const std::unique_ptr<chat::AnswerParser> parser_;
  const bool whole_;
  bool called_ = false;
  size_t kept_bytes_ = 0;
  size_t tokens_ = 0;  // whose text is held back, or was a marker: they belong to what comes next
  size_t reasoning_tokens_ = 0;
  moe::v1::ChatResponse kept_;
  std::vector<chat::AnswerPart> parts_;
};

}  // namespace moed
