#include "core/chat/answer/section_call.h"

#include <string>
#include <utility>

#include "core/chat/answer/json_scanner.h"
#include "core/chat/answer/markers.h"

namespace moed::chat {
namespace {

constexpr std::string_view kFence = "```";
constexpr std::string_view kJsonFence = "```json";

class SectionReader final : public CallReader {
 public:
  explicit SectionReader(const SectionSyntax& syntax) : syntax_(syntax), choice_({syntax.call_open}) {}
  CallState Put(char c, AnswerWriter& out) override;

 private:
  enum class At : uint8_t {
    kBetween,
    kHead,
    kIdClose,
    kSeparator,
    kAfterSeparator,
    kFencedName,
    kFence,
    kFenced,
    kArguments,
    kClose
  };

  CallState Await(At at, std::vector<std::string_view> literals) {
    at_ = at;
    choice_ = Choice(std::move(literals));
    return CallState::kHeld;
  }
  CallState Name(char c, AnswerWriter& out);
  CallState EndName(AnswerWriter& out, char c);
  CallState Marker(int marker);
  CallState BeginArguments(char c, AnswerWriter& out);
  CallState Arguments(char c, AnswerWriter& out);

  const SectionSyntax& syntax_;
  At at_ = At::kBetween;
  Choice choice_;
  JsonScanner scanner_;
  std::string name_, id_;
};

CallState SectionReader::Put(char c, AnswerWriter& out) {
  switch (at_) {
    case At::kHead:
    case At::kFencedName:
      return Name(c, out);
    case At::kAfterSeparator:
    case At::kFenced:
      return BeginArguments(c, out);
    case At::kArguments:
      return Arguments(c, out);
    default: {
      const int marker = choice_.Put(c);
      if (marker == Choice::kMore) return CallState::kHeld;
      return marker == Choice::kNone ? CallState::kMalformed : Marker(marker);
    }
  }
}

CallState SectionReader::Name(char c, AnswerWriter& out) {
  if (name_.empty() && IsMarkerSpace(c)) return CallState::kHeld;
  if (!IsNameCharacter(c)) return name_.empty() ? CallState::kMalformed : EndName(out, c);
  name_ += c;
  return name_.size() > kMostNameBytes ? CallState::kMalformed : CallState::kHeld;
}

CallState SectionReader::EndName(AnswerWriter& out, char c) {
  if (at_ == At::kHead && !syntax_.id_close.empty() && id_.empty()) {
    id_ = std::exchange(name_, {});
    Await(At::kIdClose, {syntax_.id_close});
  } else if (at_ == At::kHead) {
    Await(At::kSeparator, {syntax_.separator});
  } else {
    Await(At::kFence, {kJsonFence});
  }
  return Put(c, out);
}

CallState SectionReader::Marker(int marker) {
  switch (at_) {
    case At::kBetween:
      if (marker == 1) return CallState::kDone;
      name_.clear();
      id_.clear();
      at_ = At::kHead;
      return CallState::kHeld;
    case At::kIdClose:
      at_ = At::kHead;
      return CallState::kHeld;
    case At::kSeparator:
      at_ = At::kAfterSeparator;
      return CallState::kHeld;
    case At::kFence:
      at_ = At::kFenced;
      return CallState::kHeld;
    default:                                                            // kClose
      if (marker == 1) return Await(At::kClose, {syntax_.call_close});  // after the fence
      Await(At::kBetween, {syntax_.call_open, syntax_.section_close});
      return CallState::kTaken;
  }
}

CallState SectionReader::BeginArguments(char c, AnswerWriter& out) {
  if (IsMarkerSpace(c)) return CallState::kHeld;
  if (c != '{') {
    if (at_ != At::kAfterSeparator || !id_.empty()) return CallState::kMalformed;
    at_ = At::kFencedName;  // what came before the separator was the call's kind
    name_.clear();
    return Name(c, out);
  }
  if (syntax_.names_are_ids) {
    id_ = name_;
    name_ = name_.substr(0, name_.rfind(':'));
    constexpr std::string_view kPrefix = "functions.";
    if (name_.compare(0, kPrefix.size(), kPrefix) == 0) name_.erase(0, kPrefix.size());
  }
  out.BeginCall(name_, id_);
  scanner_ = JsonScanner();
  at_ = At::kArguments;
  return Arguments(c, out);
}

CallState SectionReader::Arguments(char c, AnswerWriter& out) {
  const JsonScanner::State state = scanner_.Put(c);
  if (state == JsonScanner::State::kMalformed) return CallState::kMalformed;
  out.Arguments({&c, 1});
  if (state == JsonScanner::State::kDone) Await(At::kClose, {syntax_.call_close, kFence});
  return CallState::kTaken;
}

}  // namespace

std::unique_ptr<CallReader> MakeSectionReader(const SectionSyntax& syntax) { return std::make_unique<SectionReader>(syntax); }

}  // namespace moed::chat
