#include "core/chat/answer/gemma_call.h"

#include <string>
#include <utility>

#include "core/chat/answer/literal_value.h"
#include "core/chat/answer/markers.h"

namespace moed::chat {
namespace {

class GemmaReader final : public CallReader {
 public:
  CallState Put(char c, AnswerWriter& out) override {
    switch (at_) {
      case At::kName:
        return Name(c, out);
      case At::kArguments:
        return Arguments(c, out);
      default: {
        const int choice = choice_.Put(c);
        if (choice == Choice::kMore) return CallState::kHeld;
        if (choice == Choice::kNone) return CallState::kMalformed;
        return std::exchange(at_, At::kName) == At::kClose ? CallState::kDone : CallState::kHeld;
      }
    }
  }
  void End(AnswerWriter& out) override { out.Arguments(value_.Rest()); }

 private:
  enum class At : uint8_t { kCall, kName, kArguments, kClose };

  CallState Name(char c, AnswerWriter& out) {
    if (IsNameCharacter(c)) {
      name_ += c;
      return name_.size() > kMostNameBytes ? CallState::kMalformed : CallState::kHeld;
    }
    if (c != '{' || name_.empty()) return CallState::kMalformed;
    out.BeginCall(name_, "");
    at_ = At::kArguments;
    return Arguments(c, out);
  }
  CallState Arguments(char c, AnswerWriter& out) {
    std::string json;
    const LiteralValue::State state = value_.Put(c, json);
    out.Arguments(json);
    if (state == LiteralValue::State::kMalformed) return CallState::kMalformed;
    if (state == LiteralValue::State::kMore) return json.empty() ? CallState::kHeld : CallState::kTaken;
    at_ = At::kClose;
    choice_ = Choice({"<tool_call|>"});
    return CallState::kTaken;
  }

  At at_ = At::kCall;
  Choice choice_{{"call:"}};
  std::string name_;
  LiteralValue value_{kGemma};
};

}  // namespace

std::unique_ptr<CallReader> MakeGemmaReader() { return std::make_unique<GemmaReader>(); }

}  // namespace moed::chat
