// Python's literals, and JSON's, as JSON, byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/answer/json_scanner.h"

namespace moed::chat {

// One string, number, True, False or None, or a list, tuple or dict of these, of valid UTF-8. White space before it belongs to
// it.
class PythonValue {
 public:
  using State = JsonScanner::State;
  // Appends to `json` what is known of the value. Bytes that append nothing say nothing before later ones do.
  State Put(char c, std::string& json);

 private:
  enum class Expect : uint8_t { kValue, kItemOrEnd, kKey, kKeyOrEnd, kColon, kNext, kString, kEscape, kHex, kNumber, kWord };
  State To(Expect next) {
    expect_ = next;
    return State::kMore;
  }
  State Begin(char c, std::string& json);
  State Open(char c, std::string& json);
  State Close(char c, std::string& json);
  State BeginString(char c, std::string& json);
  State InString(char c, std::string& json);
  State Escape(char c, std::string& json);
  State Hex(char c, std::string& json);
  State InNumber(char c, std::string& json);
  State InWord(char c, std::string& json);
  State Ended();

  Expect expect_ = Expect::kValue;
  bool is_key_ = false;      // of the string
  char quote_ = '"';         // that ends it
  std::string held_;         // of a word or an escape, as it is written
  size_t hex_digits_ = 0;    // of the escape
  JsonScanner number_;       // that has begun
  std::string containers_;   // the ends of those that are open
  std::string before_item_;  // what comes before the next item, if there is one
};

}  // namespace moed::chat
