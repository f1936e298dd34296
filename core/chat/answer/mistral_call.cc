#include "core/chat/answer/mistral_call.h"

#include <string>
#include <string_view>

#include "core/chat/answer/json_call.h"
#include "core/chat/answer/json_scanner.h"
#include "core/chat/answer/markers.h"

namespace moed::chat {
namespace {

constexpr std::string_view kArguments = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";

class MistralReader final : public CallReader {
 public:
  CallState Put(char c, AnswerWriter& out) override;

 private:
  enum class At : uint8_t { kStart, kListed, kName, kTag, kId, kArgumentsTag, kBeforeArguments, kArguments };

  CallState Await(At at, std::vector<std::string_view> literals, char c, AnswerWriter& out) {
    at_ = at;
    choice_ = Choice(std::move(literals));
    return Put(c, out);
  }
  CallState Start(char c, AnswerWriter& out);
  CallState Name(char c, AnswerWriter& out);
  CallState Tag(char c);
  CallState Id(char c, AnswerWriter& out);
  CallState Arguments(char c, AnswerWriter& out);

  At at_ = At::kStart;
  Choice choice_;
  JsonCallList listed_;
  JsonScanner scanner_;
  std::string name_, id_;
};

CallState MistralReader::Put(char c, AnswerWriter& out) {
  switch (at_) {
    case At::kStart:
      return Start(c, out);
    case At::kListed:
      return listed_.Put(c, out);
    case At::kName:
      return Name(c, out);
    case At::kTag:
    case At::kArgumentsTag:
      return Tag(c);
    case At::kId:
      return Id(c, out);
    default:
      return Arguments(c, out);
  }
}

CallState MistralReader::Start(char c, AnswerWriter& out) {
  if (IsMarkerSpace(c)) return CallState::kHeld;
  if (c == '[') {
    at_ = At::kListed;
    return listed_.Put(c, out);
  }
  at_ = At::kName;
  return Name(c, out);
}

CallState MistralReader::Name(char c, AnswerWriter& out) {
  if (IsNameCharacter(c)) {
    name_ += c;
    return name_.size() > kMostNameBytes ? CallState::kMalformed : CallState::kHeld;
  }
  if (name_.empty()) return CallState::kMalformed;
  if (c == '[') return Await(At::kTag, {kArguments, kCallId}, c, out);
  at_ = At::kBeforeArguments;
  return Arguments(c, out);
}

CallState MistralReader::Tag(char c) {
  const int tag = choice_.Put(c);
  if (tag == Choice::kNone) return CallState::kMalformed;
  if (tag == 0) at_ = At::kBeforeArguments;
  if (tag == 1) at_ = At::kId;
  return CallState::kHeld;
}

CallState MistralReader::Id(char c, AnswerWriter& out) {
  if (!IsNameCharacter(c)) return Await(At::kArgumentsTag, {kArguments}, c, out);
  id_ += c;
  return id_.size() > kMostNameBytes ? CallState::kMalformed : CallState::kHeld;
}

CallState MistralReader::Arguments(char c, AnswerWriter& out) {
  if (at_ == At::kBeforeArguments) {
    if (IsMarkerSpace(c)) return CallState::kHeld;
    if (c != '{') return CallState::kMalformed;
    out.BeginCall(name_, id_);
    at_ = At::kArguments;
  }
  const JsonScanner::State state = scanner_.Put(c);
  if (state == JsonScanner::State::kMalformed) return CallState::kMalformed;
  out.Arguments({&c, 1});
  return state == JsonScanner::State::kDone ? CallState::kDone : CallState::kTaken;
}

}  // namespace

std::unique_ptr<CallReader> MakeMistralReader() { return std::make_unique<MistralReader>(); }

}  // namespace moed::chat
