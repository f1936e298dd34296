#include "core/chat/answer/json_scanner.h"

#include <cstring>

#include "core/base/status.h"

namespace moed::chat {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

JsonScanner::State JsonScanner::Put(char c) {
  switch (expect_) {
    case Expect::kString:
      return InString(c);
    case Expect::kEscape:
      if (c == 'u') return To(Expect::kUnicode);
      return c != 0 && std::strchr("\"\\/bfnrt", c) != nullptr ? To(Expect::kString) : State::kMalformed;
    case Expect::kUnicode:
      return Unicode(c);
    case Expect::kLowSurrogate:
      return c == '\\' ? To(Expect::kLowSurrogateU) : State::kMalformed;
    case Expect::kLowSurrogateU:
      return c == 'u' ? To(Expect::kUnicode) : State::kMalformed;
    case Expect::kWord:
      return InWord(c);
    case Expect::kMinus:
    case Expect::kZero:
    case Expect::kDigits:
    case Expect::kPoint:
    case Expect::kFraction:
    case Expect::kExponent:
    case Expect::kExponentSign:
    case Expect::kExponentDigits:
      return InNumber(c);
    default:
      return IsSpace(c) ? State::kMore : Between(c);
  }
}

JsonScanner::State JsonScanner::Between(char c) {
  switch (expect_) {
    case Expect::kItemOrEnd:
      return c == ']' ? Close(false) : Begin(c);
    case Expect::kKeyOrEnd:
    case Expect::kKey:
      if (c == '}' && expect_ == Expect::kKeyOrEnd) return Close(true);
      is_key_ = true;
      return c == '"' ? To(Expect::kString) : State::kMalformed;
    case Expect::kColon:
      return c == ':' ? To(Expect::kValue) : State::kMalformed;
    case Expect::kNext:
      if (c == ',') return To(objects_.back() ? Expect::kKey : Expect::kValue);
      return c == '}' ? Close(true) : c == ']' ? Close(false) : State::kMalformed;
    default:
      return Begin(c);
  }
}

JsonScanner::State JsonScanner::Begin(char c) {
  is_key_ = false;
  switch (c) {
    case '{':
    case '[':
      return Open(c == '{');
    case '"':
      return To(Expect::kString);
    case 't':
      word_ = "rue";
      return To(Expect::kWord);
    case 'f':
      word_ = "alse";
      return To(Expect::kWord);
    case 'n':
      word_ = "ull";
      return To(Expect::kWord);
    case '-':
      return To(Expect::kMinus);
    case '0':
      return To(Expect::kZero);
    default:
      return IsDigit(c) ? To(Expect::kDigits) : State::kMalformed;
  }
}

JsonScanner::State JsonScanner::Open(bool object) {
  if (objects_.size() >= kMostDepth) return State::kMalformed;
  objects_.push_back(object);
  return To(object ? Expect::kKeyOrEnd : Expect::kItemOrEnd);
}

JsonScanner::State JsonScanner::Close(bool object) {
  if (objects_.back() != object) return State::kMalformed;
  objects_.pop_back();
  return Ended();
}

JsonScanner::State JsonScanner::Ended() {
  expect_ = Expect::kNext;
  return objects_.empty() ? State::kDone : State::kMore;
}

JsonScanner::State JsonScanner::InString(char c) {
  if (c == '\\') return To(Expect::kEscape);
  if (c != '"') return static_cast<uint8_t>(c) < 0x20 ? State::kMalformed : State::kMore;
  if (!is_key_) return Ended();
  return To(Expect::kColon);
}

JsonScanner::State JsonScanner::Unicode(char c) {
  const char* const kDigits = "0123456789abcdef";
  const char* const digit = c == 0 ? nullptr : std::strchr(kDigits, c | 0x20);
  if (digit == nullptr || (c < '0')) return State::kMalformed;
  code_ = code_ << 4 | static_cast<uint32_t>(digit - kDigits);
  if (++hex_digits_ < 4) return State::kMore;
  const bool high = code_ >= 0xd800 && code_ < 0xdc00;
  const bool low = code_ >= 0xdc00 && code_ < 0xe000;
  if (low != wants_low_) return State::kMalformed;
  wants_low_ = high;
  hex_digits_ = 0;
  code_ = 0;
  return To(high ? Expect::kLowSurrogate : Expect::kString);
}

JsonScanner::State JsonScanner::InWord(char c) {
  if (c != *word_) return State::kMalformed;
  return *++word_ == 0 ? Ended() : State::kMore;
}

JsonScanner::State JsonScanner::InNumber(char c) {
  const bool whole = expect_ == Expect::kZero || expect_ == Expect::kDigits || expect_ == Expect::kFraction ||
                     expect_ == Expect::kExponentDigits;
  if (NumberGoesOn(c)) return State::kMore;
  if (!whole) return State::kMalformed;
  if (Ended() == State::kDone) return State::kEndedBefore;
  return Put(c);
}

bool JsonScanner::NumberGoesOn(char c) {
  const auto to = [this](Expect next) {
    expect_ = next;
    return true;
  };
  switch (expect_) {
    case Expect::kMinus:
      return c == '0' ? to(Expect::kZero) : IsDigit(c) && to(Expect::kDigits);
    case Expect::kDigits:
      if (IsDigit(c)) return true;
      [[fallthrough]];
    case Expect::kZero:
      return c == '.' ? to(Expect::kPoint) : (c == 'e' || c == 'E') && to(Expect::kExponent);
    case Expect::kPoint:
      return IsDigit(c) && to(Expect::kFraction);
    case Expect::kFraction:
      return IsDigit(c) || ((c == 'e' || c == 'E') && to(Expect::kExponent));
    case Expect::kExponent:
      return IsDigit(c) ? to(Expect::kExponentDigits) : (c == '+' || c == '-') && to(Expect::kExponentSign);
    default:  // kExponentSign, kExponentDigits
      return IsDigit(c) && to(Expect::kExponentDigits);
  }
}

bool JsonScanner::Closable() const {
  switch (expect_) {
    case Expect::kString:
      return !is_key_;
    case Expect::kItemOrEnd:
    case Expect::kKeyOrEnd:
    case Expect::kNext:
    case Expect::kZero:
    case Expect::kDigits:
    case Expect::kFraction:
    case Expect::kExponentDigits:
      return true;
    default:
      return false;
  }
}

std::string JsonScanner::Ends() const {
  std::string ends = expect_ == Expect::kString ? "\"" : "";
  for (auto object = objects_.rbegin(); object != objects_.rend(); ++object) ends += *object ? '}' : ']';
  return ends;
}

bool JsonScanner::InString() const { return expect_ >= Expect::kString && expect_ <= Expect::kLowSurrogateU; }

std::optional<std::string> ClosedJson(std::string_view beginning) {
  JsonScanner whole, part;
  size_t closable = 0;
  for (size_t i = 0; i < beginning.size(); ++i) {
    if (whole.Put(beginning[i]) != JsonScanner::State::kMore) return std::nullopt;
    if (whole.Closable()) closable = i + 1;
  }
  if (closable == 0) return std::nullopt;
  for (const char c : beginning.substr(0, closable)) part.Put(c);
  return StrCat(beginning.substr(0, closable), part.Ends());
}

}  // namespace moed::chat
