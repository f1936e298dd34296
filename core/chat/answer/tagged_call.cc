#include "core/chat/answer/tagged_call.h"

#include <string>
#include <utility>

#include "core/base/status.h"
#include "core/chat/answer/json_scanner.h"
#include "core/chat/answer/markers.h"

namespace moed::chat {
namespace {

std::vector<std::string_view> Given(std::initializer_list<std::string_view> literals) {
  std::vector<std::string_view> given;
  for (const std::string_view literal : literals) {
    if (!literal.empty()) given.push_back(literal);
  }
  return given;
}

constexpr int kKeyOpens = 2, kCallEnds = 3;  // of ValueEnds

class TaggedCallReader final : public CallReader {
 public:
  TaggedCallReader(const TagSyntax& syntax, const ToolSchemas& tools, bool name_opened)
      : syntax_(syntax), tools_(tools), value_ends_(ValueEnds(syntax)) {
    if (name_opened || syntax_.name_open.empty()) {
      at_ = At::kName;
    } else {
      Await(At::kNameOpen, {syntax_.name_open});
    }
  }
  CallState Put(char c, AnswerWriter& out) override;
  void End(AnswerWriter& out) override {
    if (at_ != At::kValue) return;
    if (streams_ == Streams::kJson && !InJsonString()) return;
    out.Arguments(streams_ == Streams::kString ? EscapedForJson(scanner_.Take()) : value_ + scanner_.Take());
  }

 private:
  enum class At : uint8_t { kNameOpen, kName, kNameClose, kKeyOpen, kKey, kValueOpen, kValue, kCallClosed };

  CallState Await(At at, std::initializer_list<std::string_view> literals) {
    at_ = at;
    choice_ = Choice(Given(literals));
    return CallState::kHeld;
  }
  CallState AwaitKey() { return Await(At::kKeyOpen, {syntax_.key_open, syntax_.call_close}); }
  CallState Name(char c, AnswerWriter& out);
  CallState Tag(int tag, AnswerWriter& out);
  CallState KeyOpenOrEnd(bool key, AnswerWriter& out);
  CallState Key(char c, AnswerWriter& out);
  CallState EndCall(AnswerWriter& out);
  CallState BeginValue(AnswerWriter& out);
  CallState Value(char c, AnswerWriter& out);
  void ScanJson(std::string_view text);
  bool BeginsJson() const;
  bool InJsonString() const { return json_state_ == JsonScanner::State::kMore && json_.InString(); }
  void TakeValue(bool ends, AnswerWriter& out);
  void EndValue(AnswerWriter& out);

  const TagSyntax& syntax_;
  const ToolSchemas tools_;
  const std::vector<std::string> value_ends_;
  At at_ = At::kName;
  Choice choice_;
  MarkerScanner scanner_;
  std::string name_, key_, value_;
  JsonTypes types_ = kJsonString;  // of the value
  bool is_json_ = false;           // its tag says so
  bool begun_ = false;             // the call
  bool has_keys_ = false;
  bool value_begun_ = false;  // a byte of it has come
  // How the value is written as it comes; kNot: it is held until its end.
  enum class Streams : uint8_t { kNot, kString, kJson };
  Streams streams_ = Streams::kNot;
  JsonScanner json_;  // of the value, where it can be no string
  JsonScanner::State json_state_ = JsonScanner::State::kMore;
};

CallState TaggedCallReader::Put(char c, AnswerWriter& out) {
  switch (at_) {
    case At::kName:
      return Name(c, out);
    case At::kKey:
      return Key(c, out);
    case At::kValue:
      return Value(c, out);
    default: {
      const int tag = choice_.Put(c);
      if (tag == Choice::kMore) return CallState::kHeld;
      return tag == Choice::kNone ? CallState::kMalformed : Tag(tag, out);
    }
  }
}

CallState TaggedCallReader::Name(char c, AnswerWriter& out) {
  if (name_.empty() && IsMarkerSpace(c)) return CallState::kHeld;
  if (IsNameCharacter(c)) {
    name_ += c;
    return name_.size() > kMostNameBytes ? CallState::kMalformed : CallState::kHeld;
  }
  if (name_.empty()) return CallState::kMalformed;
  if (syntax_.name_close.empty()) {
    AwaitKey();
  } else {
    Await(At::kNameClose, {syntax_.name_close});
  }
  return Put(c, out);
}

CallState TaggedCallReader::Tag(int tag, AnswerWriter& out) {
  switch (at_) {
    case At::kNameOpen:
      if (tag == 1) return CallState::kDone;  // the section's end instead
      at_ = At::kName;
      return CallState::kHeld;
    case At::kNameClose:
      return AwaitKey();
    case At::kKeyOpen:
      return KeyOpenOrEnd(tag == 0, out);
    case At::kValueOpen:
      return BeginValue(out);
    default:  // kCallClosed
      return CallState::kDone;
  }
}

CallState TaggedCallReader::KeyOpenOrEnd(bool key, AnswerWriter& out) {
  if (!begun_) {
    out.BeginCall(name_, "");
    out.Arguments("{");
    begun_ = true;
  }
  if (!key) return EndCall(out);
  at_ = At::kKey;
  key_.clear();
  scanner_ = MarkerScanner(Given({syntax_.key_close, syntax_.json_key_close}));
  return CallState::kHeld;
}

CallState TaggedCallReader::EndCall(AnswerWriter& out) {
  out.Arguments("}");
  begun_ = has_keys_ = false;
  name_.clear();
  if (syntax_.section_close.empty()) return CallState::kDone;
  if (syntax_.many) {
    Await(At::kNameOpen, {syntax_.name_open, syntax_.section_close});
  } else {
    Await(At::kCallClosed, {syntax_.section_close});
  }
  return CallState::kTaken;
}

CallState TaggedCallReader::Key(char c, AnswerWriter& out) {
  const int close = scanner_.Put(c, key_);
  if (c == '\n' || key_.size() > kMostNameBytes) return CallState::kMalformed;
  if (close == MarkerScanner::kNone) return CallState::kHeld;
  is_json_ = close == 1;
  types_ = is_json_ ? kJsonAny & ~kJsonString : syntax_.json_key_close.empty() ? tools_.TypesOf(name_, key_) : kJsonString;
  if (!syntax_.value_open.empty()) return Await(At::kValueOpen, {syntax_.value_open});
  return BeginValue(out);
}

CallState TaggedCallReader::BeginValue(AnswerWriter& out) {
  out.Arguments(StrCat(has_keys_ ? ", \"" : "\"", EscapedForJson(key_), "\": "));
  has_keys_ = true;
  at_ = At::kValue;
  value_.clear();
  value_begun_ = false;
  json_ = JsonScanner();
  json_state_ = JsonScanner::State::kMore;
  streams_ = types_ == kJsonString ? Streams::kString : Streams::kNot;
  if (streams_ == Streams::kString) out.Arguments("\"");
  scanner_ = MarkerScanner({value_ends_.begin(), value_ends_.end()});
  return CallState::kTaken;
}

CallState TaggedCallReader::Value(char c, AnswerWriter& out) {
  const bool first = !std::exchange(value_begun_, true);
  if (first && syntax_.lines && c == '\n') return CallState::kTaken;
  std::string text;
  const int end = scanner_.Put(c, text);
  ScanJson(text);
  bool ends = end != MarkerScanner::kNone;
  if (ends && (is_json_ || streams_ == Streams::kJson) && InJsonString()) {
    ScanJson(scanner_.found());
    text += scanner_.found();
    ends = false;
  }
  const bool fits = ends ? json_state_ == JsonScanner::State::kDone : json_state_ != JsonScanner::State::kMalformed;
  if (streams_ == Streams::kJson && !fits) return CallState::kMalformed;
  value_ += text;
  TakeValue(ends, out);
  // What the scanner holds of a list or an object may turn out to be none of it.
  if (!ends) return streams_ == Streams::kJson && text.empty() ? CallState::kHeld : CallState::kTaken;
  EndValue(out);
  if (end == kCallEnds) return KeyOpenOrEnd(false, out);
  if (end == kKeyOpens) {
    KeyOpenOrEnd(true, out);
  } else {
    AwaitKey();
  }
  return CallState::kTaken;
}

void TaggedCallReader::ScanJson(std::string_view text) {
  if ((types_ & kJsonString) != 0) return;
  for (const char c : text) {
    if (json_state_ == JsonScanner::State::kMore) {
      json_state_ = json_.Put(c);
    } else if (!IsMarkerSpace(c)) {
      json_state_ = JsonScanner::State::kMalformed;
    }
  }
}

// A list or an object, where the value may be one.
bool TaggedCallReader::BeginsJson() const {
  if ((types_ & kJsonString) != 0 || json_state_ == JsonScanner::State::kMalformed) return false;
  const size_t first = value_.find_first_not_of(" \t\n\r");
  if (first == std::string::npos) return false;
  return (value_[first] == '[' && (types_ & kJsonArray) != 0) || (value_[first] == '{' && (types_ & kJsonObject) != 0);
}

// What is too long to be held until its type is known is a list or an object that goes on, or else a string.
void TaggedCallReader::TakeValue(bool ends, AnswerWriter& out) {
  if (streams_ == Streams::kNot && !ends && value_.size() > AnswerParser::kMostHeldBytes) {
    streams_ = BeginsJson() ? Streams::kJson : Streams::kString;
    if (streams_ == Streams::kString) out.Arguments("\"");
  }
  if (streams_ == Streams::kNot) return;
  const std::string text = std::exchange(value_, {});
  out.Arguments(streams_ == Streams::kString ? EscapedForJson(text) : text);
}

void TaggedCallReader::EndValue(AnswerWriter& out) {
  if (streams_ == Streams::kNot) out.Arguments(JsonOfText(value_, types_));
  if (streams_ == Streams::kString) out.Arguments("\"");
}

}  // namespace

std::vector<std::string> ValueEnds(const TagSyntax& syntax) {
  std::vector<std::string> ends = {std::string(syntax.value_close)};
  if (!syntax.lines) return ends;
  for (const std::string_view tag : {syntax.value_close, syntax.key_open, syntax.call_close}) ends.push_back(StrCat("\n", tag));
  return ends;
}

std::unique_ptr<CallReader> MakeTaggedCallReader(const TagSyntax& syntax, const ToolSchemas& tools, bool name_opened) {
  return std::make_unique<TaggedCallReader>(syntax, tools, name_opened);
}

}  // namespace moed::chat
