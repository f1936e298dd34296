#include "core/chat/answer/python_value.h"

#include <utility>

#include "core/base/status.h"
#include "core/chat/answer/markers.h"
#include "core/chat/answer/tool_schemas.h"

namespace moed::chat {
namespace {

constexpr std::pair<std::string_view, std::string_view> kWords[] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                                                    {"true", "true"}, {"false", "false"}, {"null", "null"}};

}  // namespace

PythonValue::State PythonValue::Put(char c, std::string& json) {
  switch (expect_) {
    case Expect::kString:
      return InString(c, json);
    case Expect::kEscape:
      return Escape(c, json);
    case Expect::kHex:
      return Hex(c, json);
    case Expect::kNumber:
      return InNumber(c, json);
    case Expect::kWord:
      return InWord(c, json);
    default:
      break;
  }
  if (IsMarkerSpace(c)) return State::kMore;
  const bool may_end = expect_ == Expect::kItemOrEnd || expect_ == Expect::kKeyOrEnd || expect_ == Expect::kNext;
  if (may_end && c == containers_.back()) return Close(c, json);
  switch (expect_) {
    case Expect::kValue:
    case Expect::kItemOrEnd:
      return Begin(c, json);
    case Expect::kKey:
    case Expect::kKeyOrEnd:
      is_key_ = true;
      return c == '"' || c == '\'' ? BeginString(c, json) : State::kMalformed;
    case Expect::kColon:
      before_item_ = ": ";
      return c == ':' ? To(Expect::kValue) : State::kMalformed;
    default:
      before_item_ = ", ";
      if (c != ',') return State::kMalformed;
      return To(containers_.back() == '}' ? Expect::kKeyOrEnd : Expect::kItemOrEnd);  // a comma may come before the end
  }
}

PythonValue::State PythonValue::Begin(char c, std::string& json) {
  if (c == '[' || c == '(' || c == '{') return Open(c, json);
  if (c == '"' || c == '\'') return BeginString(c, json);
  if (c == '-' || (c >= '0' && c <= '9')) {
    json += std::exchange(before_item_, {});
    number_ = JsonScanner();
    To(Expect::kNumber);
    return InNumber(c, json);
  }
  held_.clear();
  To(Expect::kWord);
  return InWord(c, json);
}

PythonValue::State PythonValue::Open(char c, std::string& json) {
  if (containers_.size() == JsonScanner::kMostDepth) return State::kMalformed;
  json += std::exchange(before_item_, {});
  json += c == '{' ? '{' : '[';
  containers_ += c == '{' ? '}' : c == '[' ? ']' : ')';
  return To(c == '{' ? Expect::kKeyOrEnd : Expect::kItemOrEnd);
}

PythonValue::State PythonValue::Close(char c, std::string& json) {
  before_item_.clear();
  json += c == '}' ? '}' : ']';
  containers_.pop_back();
  return Ended();
}

PythonValue::State PythonValue::Ended() {
  if (containers_.empty()) return State::kDone;
  return To(Expect::kNext);
}

PythonValue::State PythonValue::BeginString(char c, std::string& json) {
  json += std::exchange(before_item_, {});
  json += '"';
  quote_ = c;
  return To(Expect::kString);
}

PythonValue::State PythonValue::InString(char c, std::string& json) {
  if (c == '\\') return To(Expect::kEscape);
  if (c != quote_) {
    json += EscapedForJson({&c, 1});
    return State::kMore;
  }
  json += '"';
  if (std::exchange(is_key_, false)) return To(Expect::kColon);
  return Ended();
}

PythonValue::State PythonValue::Escape(char c, std::string& json) {
  held_.clear();
  hex_digits_ = c == 'x' ? 2 : c == 'u' ? 4 : 0;
  if (hex_digits_ != 0) return To(Expect::kHex);
  constexpr std::string_view kAsInJson = "nrtbf\"\\/";
  if (kAsInJson.find(c) != std::string_view::npos) {
    json += {'\\', c};
  } else if (c == '\'') {
    json += c;
  } else {  // Python keeps the backslash of what is no escape
    json += StrCat("\\\\", EscapedForJson({&c, 1}));
  }
  return To(Expect::kString);
}

PythonValue::State PythonValue::Hex(char c, std::string& json) {
  const bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  if (!digit) return State::kMalformed;
  held_ += c;
  if (held_.size() < hex_digits_) return State::kMore;
  json += StrCat("\\u", hex_digits_ == 2 ? "00" : "", held_);
  return To(Expect::kString);
}

PythonValue::State PythonValue::InNumber(char c, std::string& json) {
  const State state = number_.Put(c);
  if (state == State::kMalformed) return State::kMalformed;
  if (state != State::kEndedBefore) {
    json += c;
    return State::kMore;
  }
  if (containers_.empty()) return State::kEndedBefore;
  To(Expect::kNext);
  return Put(c, json);
}

PythonValue::State PythonValue::InWord(char c, std::string& json) {
  held_ += c;
  for (const auto& [word, meaning] : kWords) {
    if (word == held_) {
      json += StrCat(std::exchange(before_item_, {}), meaning);
      return Ended();
    }
    if (word.substr(0, held_.size()) == held_) return State::kMore;
  }
  return State::kMalformed;
}

}  // namespace moed::chat
