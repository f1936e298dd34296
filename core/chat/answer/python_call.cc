#include "core/chat/answer/python_call.h"

#include <string>
#include <utility>

#include "core/base/status.h"
#include "core/chat/answer/json_call.h"
#include "core/chat/answer/literal_value.h"
#include "core/chat/answer/markers.h"

namespace moed::chat {
namespace {

class PythonReader final : public CallReader {
 public:
  explicit PythonReader(std::string_view close, const ToolSchemas* known = nullptr, bool bracket_came = false)
      : has_close_(!close.empty()), close_({close}), known_(known), at_(bracket_came ? At::kName : At::kBracket) {}
  CallState Put(char c, AnswerWriter& out) override;

 private:
  enum class At : uint8_t { kBracket, kName, kKeyOrEnd, kKey, kValue, kAfterValue, kAfterCall, kClose };

  CallState Held(At next) {
    at_ = next;
    return CallState::kHeld;
  }
  CallState Name(char c, AnswerWriter& out);
  CallState Key(char c, AnswerWriter& out);
  CallState Value(char c, AnswerWriter& out);
  CallState EndCall(AnswerWriter& out);
  CallState AfterCall(char c);

  const bool has_close_;
  Choice close_;
  const ToolSchemas* known_;
  At at_;
  std::string name_;  // of the tool or the argument
  bool has_arguments_ = false;
  LiteralValue value_;
};

CallState PythonReader::Put(char c, AnswerWriter& out) {
  if (at_ == At::kClose) return PutClose(c, close_);
  if (at_ == At::kValue) return Value(c, out);
  if (IsMarkerSpace(c)) return at_ == At::kName && !name_.empty() ? CallState::kMalformed : CallState::kHeld;
  switch (at_) {
    case At::kBracket:
      return c == '[' ? Held(At::kName) : CallState::kMalformed;
    case At::kName:
      return Name(c, out);
    case At::kKeyOrEnd:
    case At::kKey:
      return c == ')' && at_ == At::kKeyOrEnd && name_.empty() ? EndCall(out) : Key(c, out);
    case At::kAfterValue:
      if (c == ')') return EndCall(out);
      return c == ',' ? Held(At::kKeyOrEnd) : CallState::kMalformed;
    default:
      return AfterCall(c);
  }
}

CallState PythonReader::Name(char c, AnswerWriter& out) {
  if (IsNameCharacter(c)) {
    name_ += c;
    return name_.size() > kMostNameBytes ? CallState::kMalformed : CallState::kHeld;
  }
  if (c != '(' || name_.empty() || (known_ != nullptr && !known_->Has(name_))) return CallState::kMalformed;
  out.BeginCall(std::exchange(name_, {}), "");
  out.Arguments("{");
  has_arguments_ = false;
  at_ = At::kKeyOrEnd;
  return CallState::kTaken;
}

CallState PythonReader::Key(char c, AnswerWriter& out) {
  if (IsNameCharacter(c)) {
    name_ += c;
    return name_.size() > kMostNameBytes ? CallState::kMalformed : Held(At::kKey);
  }
  if (c != '=' || name_.empty()) return CallState::kMalformed;
  out.Arguments(StrCat(std::exchange(has_arguments_, true) ? ", \"" : "\"", std::exchange(name_, {}), "\": "));
  value_ = LiteralValue();
  at_ = At::kValue;
  return CallState::kTaken;
}

CallState PythonReader::Value(char c, AnswerWriter& out) {
  std::string json;
  const LiteralValue::State state = value_.Put(c, json);
  out.Arguments(json);
  switch (state) {
    case LiteralValue::State::kMalformed:
      return CallState::kMalformed;
    case LiteralValue::State::kMore:
      return json.empty() ? CallState::kHeld : CallState::kTaken;
    case LiteralValue::State::kDone:
      at_ = At::kAfterValue;
      return CallState::kTaken;
    default:  // kEndedBefore
      at_ = At::kAfterValue;
      return Put(c, out);
  }
}

CallState PythonReader::EndCall(AnswerWriter& out) {
  out.Arguments("}");
  at_ = At::kAfterCall;
  return CallState::kTaken;
}

CallState PythonReader::AfterCall(char c) {
  if (c == ',') return Held(At::kName);
  if (c != ']') return CallState::kMalformed;
  if (!has_close_) return CallState::kDone;
  return Held(At::kClose);
}

// Which of the ways it is tells the first byte.
class BareReader final : public CallReader {
 public:
  BareReader(const ToolSchemas& tools, bool bracket_came) : tools_(tools), marked_(!bracket_came), bracket_(bracket_came) {}
  bool MayBeText() const override { return !marked_; }
  CallState Put(char c, AnswerWriter& out) override {
    if (in_json_) return json_.Put(c, out);
    if (reader_ != nullptr) return reader_->Put(c, out);
    if (IsMarkerSpace(c)) return CallState::kHeld;
    if (!bracket_ && c == '{') {
      reader_ = MakeBareJsonReader(std::move(tools_), true);
      return CallState::kHeld;
    }
    if (!bracket_) {
      bracket_ = true;
      return c == '[' ? CallState::kHeld : CallState::kMalformed;
    }
    in_json_ = c == '{';
    if (in_json_) return json_.Put(c, out);
    reader_ = std::make_unique<PythonReader>("", &tools_, true);
    return reader_->Put(c, out);
  }

 private:
  ToolSchemas tools_;  // until the JSON's reader has it
  const bool marked_;
  bool bracket_;
  bool in_json_ = false;
  JsonCallList json_{&tools_, true};
  std::unique_ptr<CallReader> reader_;
};

}  // namespace

std::unique_ptr<CallReader> MakePythonReader(std::string_view close) { return std::make_unique<PythonReader>(close); }

std::unique_ptr<CallReader> MakeBareListReader(const ToolSchemas& tools) { return std::make_unique<BareReader>(tools, true); }

std::unique_ptr<CallReader> MakeBareReader(const ToolSchemas& tools) { return std::make_unique<BareReader>(tools, false); }

}  // namespace moed::chat
