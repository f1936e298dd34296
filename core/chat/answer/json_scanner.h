// Where a value of JSON ends (RFC 8259), and whether it is one, byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moed::chat {

// One value, of valid UTF-8. White space before it belongs to it.
class JsonScanner {
 public:
  static constexpr size_t kMostDepth = 100;  // as ValueFromJson
  enum class State : uint8_t {
    kMore,
    kDone,         // this byte was the last
    kEndedBefore,  // a number, which nothing else ends, ended before this byte
    kMalformed,
  };
  State Put(char c);
  // Whether ends alone make a whole value of the bytes so far, and these ends.
  bool Closable() const;
  std::string Ends() const;
  bool InString() const;

 private:
  enum class Expect : uint8_t {
    kValue,
    kItemOrEnd,
    kKey,
    kKeyOrEnd,
    kColon,
    kNext,  // a comma or the container's end
    kString,
    kEscape,
    kUnicode,
    kLowSurrogate,  // its backslash, and then its u
    kLowSurrogateU,
    kWord,
    kMinus,
    kZero,
    kDigits,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
  };
  State To(Expect next) {
    expect_ = next;
    return State::kMore;
  }
  State Between(char c);
  State Begin(char c);
  State Open(bool object);
  State Close(bool object);
  State Ended();
  State InString(char c);
  State Unicode(char c);
  State InWord(char c);
  State InNumber(char c);
  bool NumberGoesOn(char c);

  Expect expect_ = Expect::kValue;
  bool is_key_ = false;     // of the string
  bool wants_low_ = false;  // the escape must be a low surrogate
  int hex_digits_ = 0;
  uint32_t code_ = 0;
  const char* word_ = "";      // what is left of true, false or null
  std::vector<bool> objects_;  // the open containers
};

// Of the beginning of a list or an object as much as makes a whole one, and its ends: {"a": [1, "be is {"a": [1, "be"]}. Nothing
// of what is no beginning, or is whole.
std::optional<std::string> ClosedJson(std::string_view beginning);

}  // namespace moed::chat
