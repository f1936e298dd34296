#include "core/chat/answer/literal_value.h"

#include <utility>

#include "core/base/status.h"
#include "core/chat/answer/call_reader.h"
#include "core/chat/answer/tool_schemas.h"

namespace moed::chat {
namespace {

constexpr std::pair<std::string_view, std::string_view> kWords[] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                                                    {"true", "true"}, {"false", "false"}, {"null", "null"}};

}  // namespace

LiteralValue::State LiteralValue::Put(char c, std::string& json) {
  switch (expect_) {
    case Expect::kString:
      return InString(c, json);
    case Expect::kEscape:
      return Escape(c, json);
    case Expect::kHex:
      return Hex(c, json);
    case Expect::kQuote:
      return Quote(c, json);
    case Expect::kQuoted:
      return Quoted(c, json);
    case Expect::kBareKey:
      return BareKey(c, json);
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
      return Key(c, json);
    case Expect::kColon:
      before_item_ = ": ";
      return EndsKey(c) ? To(Expect::kValue) : State::kMalformed;
    default:
      before_item_ = ", ";
      if (c != ',') return State::kMalformed;
      return To(containers_.back() == '}' ? Expect::kKeyOrEnd : Expect::kItemOrEnd);  // a comma may come before the end
  }
}

LiteralValue::State LiteralValue::Begin(char c, std::string& json) {
  if (c == '[' || c == '(' || c == '{') return Open(c, json);
  if (BeginsString(c)) return BeginString(c, json);
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

LiteralValue::State LiteralValue::Open(char c, std::string& json) {
  if (containers_.size() == JsonScanner::kMostDepth) return State::kMalformed;
  json += std::exchange(before_item_, {});
  json += c == '{' ? '{' : '[';
  containers_ += c == '{' ? '}' : c == '[' ? ']' : ')';
  return To(c == '{' ? Expect::kKeyOrEnd : Expect::kItemOrEnd);
}

LiteralValue::State LiteralValue::Close(char c, std::string& json) {
  before_item_.clear();
  json += c == '}' ? '}' : ']';
  containers_.pop_back();
  return Ended();
}

LiteralValue::State LiteralValue::Ended() {
  if (containers_.empty()) return State::kDone;
  return To(Expect::kNext);
}

LiteralValue::State LiteralValue::BeginString(char c, std::string& json) {
  if (!literals_->quote.empty() && c == literals_->quote.front()) {
    open_ = Choice({literals_->quote});
    To(Expect::kQuote);
    return Quote(c, json);
  }
  json += std::exchange(before_item_, {});
  json += '"';
  quote_ = c;
  return To(Expect::kString);
}

bool LiteralValue::BeginsString(char c) const {
  return c == '"' || c == '\'' || (!literals_->quote.empty() && c == literals_->quote.front());
}

LiteralValue::State LiteralValue::Quote(char c, std::string& json) {
  const int quote = open_.Put(c);
  if (quote == Choice::kMore) return State::kMore;
  if (quote == Choice::kNone) return State::kMalformed;
  json += std::exchange(before_item_, {});
  json += '"';
  scanner_ = MarkerScanner({literals_->quote});
  return To(Expect::kQuoted);
}

LiteralValue::State LiteralValue::Quoted(char c, std::string& json) {
  std::string text;
  const bool ends = scanner_.Put(c, text) != MarkerScanner::kNone;
  json += EscapedForJson(text);
  return ends ? EndString(json) : State::kMore;
}

std::string LiteralValue::Rest() { return expect_ == Expect::kQuoted ? EscapedForJson(scanner_.Take()) : ""; }

LiteralValue::State LiteralValue::Key(char c, std::string& json) {
  is_key_ = BeginsString(c);
  if (is_key_) return BeginString(c, json);
  if (literals_->key_close != ":") return State::kMalformed;
  held_.clear();
  To(Expect::kBareKey);
  return BareKey(c, json);
}

LiteralValue::State LiteralValue::BareKey(char c, std::string& json) {
  constexpr std::string_view kNotOfKeys = "{}[]()<>,\"'\n\\";
  if (!EndsKey(c)) {
    held_ += c;
    return held_.size() > kMostNameBytes || kNotOfKeys.find(c) != std::string_view::npos ? State::kMalformed : State::kMore;
  }
  if (held_.empty()) return State::kMalformed;
  json += StrCat(std::exchange(before_item_, {}), "\"", EscapedForJson(held_), "\": ");
  return To(Expect::kValue);
}

LiteralValue::State LiteralValue::InString(char c, std::string& json) {
  if (c == '\\') return To(Expect::kEscape);
  if (c != quote_) {
    json += EscapedForJson({&c, 1});
    return State::kMore;
  }
  return EndString(json);
}

LiteralValue::State LiteralValue::EndString(std::string& json) {
  json += '"';
  if (std::exchange(is_key_, false)) return To(Expect::kColon);
  return Ended();
}

LiteralValue::State LiteralValue::Escape(char c, std::string& json) {
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

LiteralValue::State LiteralValue::Hex(char c, std::string& json) {
  const bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  if (!digit) return State::kMalformed;
  held_ += c;
  if (held_.size() < hex_digits_) return State::kMore;
  json += StrCat("\\u", hex_digits_ == 2 ? "00" : "", held_);
  return To(Expect::kString);
}

LiteralValue::State LiteralValue::InNumber(char c, std::string& json) {
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

LiteralValue::State LiteralValue::InWord(char c, std::string& json) {
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
