#include "core/chat/answer/section_call.h"

#include <string>
#include <utility>

#include "core/chat/answer/json_scanner.h"
#include "core/chat/answer/markers.h"

namespace moed::chat {
namespace {

constexpr std::string_view kFence = "```";
constexpr std::string_view kJsonFence = "```json";

// Models slip: functions_f_0, functionsf:0, f_0.
std::string_view NameInId(std::string_view id, const ToolSchemas& tools) {
  constexpr std::string_view kKind = "functions", kPrefix = "functions.", kDigits = "0123456789";
  std::string_view name = id.substr(0, id.rfind(':'));
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (tools.Has(name)) return name;
  std::string_view other = id;
  if (other.starts_with(kKind)) other.remove_prefix(kKind.size());
  if (other.starts_with('.') || other.starts_with('_') || other.starts_with('/')) other.remove_prefix(1);
  other = other.substr(0, other.find_last_not_of(kDigits) + 1);
  if (other.ends_with(':') || other.ends_with('_')) other.remove_suffix(1);
  return tools.Has(other) ? other : name;
}

class SectionReader final : public CallReader {
 public:
  SectionReader(const SectionSyntax& syntax, const ToolSchemas& tools)
      : syntax_(syntax), tools_(tools), choice_({syntax.call_open}) {}
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
  const ToolSchemas tools_;
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
    name_ = NameInId(id_, tools_);
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

std::unique_ptr<CallReader> MakeSectionReader(const SectionSyntax& syntax, const ToolSchemas& tools) {
  return std::make_unique<SectionReader>(syntax, tools);
}

}  // namespace moed::chat
