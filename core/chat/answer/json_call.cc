#include "core/chat/answer/json_call.h"

#include <utility>

#include "core/chat/json.h"

namespace moed::chat {
namespace {

std::string TextOfJson(std::string_view json) {
  const auto value = ValueFromJson(json);
  return value.ok() && value->is(Kind::kText) ? value->text() : "";
}

}  // namespace

CallState JsonCall::Put(char c, AnswerWriter& out) {
  if (at_ == At::kInKey) return InKey(c);
  if (at_ == At::kInValue) return InValue(c, out);
  if (IsMarkerSpace(c)) return CallState::kHeld;
  switch (at_) {
    case At::kStart:
      return c == '{' ? Held(At::kFirstKey) : CallState::kMalformed;
    case At::kFirstKey:
    case At::kKey:
      return StartKey(c);
    case At::kColon:
      return c == ':' ? Held(At::kBeforeValue) : CallState::kMalformed;
    case At::kBeforeValue:
      return StartValue(c, out);
    default:
      return Next(c, out);
  }
}

CallState JsonCall::StartKey(char c) {
  if (c != '"') return CallState::kMalformed;
  scanner_ = JsonScanner();
  token_.clear();
  at_ = At::kInKey;
  return InKey(c);
}

CallState JsonCall::InKey(char c) {
  token_ += c;
  const JsonScanner::State state = scanner_.Put(c);
  if (state == JsonScanner::State::kMalformed) return CallState::kMalformed;
  if (state == JsonScanner::State::kMore) return CallState::kHeld;
  const std::string key = TextOfJson(token_);
  role_ = key == "name" || key == "tool_name"         ? Role::kName
          : key == "arguments" || key == "parameters" ? Role::kArguments
          : key == "id"                               ? Role::kId
                                                      : Role::kOther;
  return Held(At::kColon);
}

CallState JsonCall::StartValue(char c, AnswerWriter& out) {
  if (role_ == Role::kName && (c != '"' || begun_)) return CallState::kMalformed;
  if (role_ == Role::kArguments) {
    if (c != '{' || has_arguments_) return CallState::kMalformed;
    has_arguments_ = true;
    if (!name_.empty() && !Begin(out)) return CallState::kMalformed;
  }
  scanner_ = JsonScanner();
  token_.clear();
  at_ = At::kInValue;
  return InValue(c, out);
}

CallState JsonCall::InValue(char c, AnswerWriter& out) {
  const JsonScanner::State state = scanner_.Put(c);
  if (state == JsonScanner::State::kMalformed) return CallState::kMalformed;
  if (state == JsonScanner::State::kEndedBefore) {
    at_ = At::kNext;
    return Put(c, out);
  }
  const bool ends = state == JsonScanner::State::kDone;
  if (role_ == Role::kArguments && begun_) {
    out.Arguments({&c, 1});
    if (ends) at_ = At::kNext;
    return CallState::kTaken;
  }
  if (role_ == Role::kArguments) {
    held_arguments_ += c;
  } else if (role_ != Role::kOther) {
    token_ += c;
  }
  return ends ? EndValue() : CallState::kHeld;
}

CallState JsonCall::EndValue() {
  if (role_ == Role::kName) {
    name_ = TextOfJson(token_);
    if (name_.empty() || name_.size() > kMostNameBytes) return CallState::kMalformed;
  } else if (role_ == Role::kId && !begun_) {
    id_ = TextOfJson(token_);
  }
  return Held(At::kNext);
}

CallState JsonCall::Next(char c, AnswerWriter& out) {
  if (c == ',') return Held(At::kKey);
  if (c != '}') return CallState::kMalformed;
  if (begun_) return CallState::kDone;
  if (!Begin(out)) return CallState::kMalformed;
  out.Arguments(held_arguments_.empty() ? "{}" : held_arguments_);
  return CallState::kDone;
}

bool JsonCall::Begin(AnswerWriter& out) {
  if (name_.empty() || (known_ != nullptr && !known_->Has(name_))) return false;
  out.BeginCall(name_, id_);
  begun_ = true;
  return true;
}

CallState JsonCallList::Put(char c, AnswerWriter& out) {
  if (at_ == At::kCall) {
    const CallState state = call_.Put(c, out);
    if (state != CallState::kDone) return state;
    at_ = At::kAfterCall;
    return CallState::kTaken;
  }
  if (IsMarkerSpace(c)) return CallState::kHeld;
  if (c == ']' && at_ == At::kAfterCall) return CallState::kDone;
  if (c != (at_ == At::kStart ? '[' : ',')) return CallState::kMalformed;
  call_ = JsonCall(known_);
  at_ = At::kCall;
  return CallState::kHeld;
}

namespace {

template <class Json>
class JsonReader final : public CallReader {
 public:
  explicit JsonReader(std::string_view close) : has_close_(!close.empty()), close_({close}) {}
  CallState Put(char c, AnswerWriter& out) override {
    if (closing_) return PutClose(c, close_);
    const CallState state = json_.Put(c, out);
    if (state != CallState::kDone || !has_close_) return state;
    closing_ = true;
    return CallState::kTaken;
  }

 private:
  const bool has_close_;
  Json json_;
  Choice close_;
  bool closing_ = false;
};

class BareJsonReader final : public CallReader {
 public:
  BareJsonReader(ToolSchemas tools, bool brace_came)
      : tools_(std::move(tools)), marked_(!brace_came), call_(&tools_, brace_came) {}
  bool MayBeText() const override { return !marked_ && !call_.NamesTool(); }
  CallState Put(char c, AnswerWriter& out) override {
    if (between_) {
      if (c != ';' && c != '{') return IsMarkerSpace(c) ? CallState::kHeld : CallState::kMalformed;
      between_ = false;
      call_ = JsonCall(&tools_, c == '{');
      return CallState::kHeld;
    }
    const CallState state = call_.Put(c, out);
    if (state != CallState::kDone) return state;
    between_ = true;
    return CallState::kTaken;
  }

 private:
  const ToolSchemas tools_;
  const bool marked_;
  JsonCall call_;
  bool between_ = false;
};

}  // namespace

std::unique_ptr<CallReader> MakeJsonCallReader(std::string_view close) { return std::make_unique<JsonReader<JsonCall>>(close); }

std::unique_ptr<CallReader> MakeJsonListReader(std::string_view close) {
  return std::make_unique<JsonReader<JsonCallList>>(close);
}

std::unique_ptr<CallReader> MakeBareJsonReader(ToolSchemas tools, bool brace_came) {
  return std::make_unique<BareJsonReader>(std::move(tools), brace_came);
}

}  // namespace moed::chat
