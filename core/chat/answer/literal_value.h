// Literals of Python, of JSON and of Gemma as JSON, byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/answer/json_scanner.h"
#include "core/chat/answer/markers.h"

namespace moed::chat {

// How a model writes them.
struct Literals {
  std::string_view quote = "";  // a token around strings, in which nothing is escaped, besides Python's quotes; "": those alone
  std::string_view key_close =
      "=";  // of a call's arguments; where it is ":" keys have no quotes in dicts either, and "=" may stand for it
};
constexpr Literals kPython;
constexpr Literals kGemma = {"<|\"|>", ":"};

// One string, number, True, False or None, or a list, tuple or dict of these, of valid UTF-8. White space before it belongs to
// it.
class LiteralValue {
 public:
  explicit LiteralValue(const Literals& literals = kPython) : literals_(&literals) {}
  using State = JsonScanner::State;
  // Appends to `json` what is known of the value. Bytes that append nothing say nothing before later ones do.
  State Put(char c, std::string& json);
  // What is held back of a string that goes on.
  std::string Rest();

 private:
  enum class Expect : uint8_t {
    kValue,
    kItemOrEnd,
    kKey,
    kKeyOrEnd,
    kColon,
    kNext,
    kString,
    kEscape,
    kHex,
    kQuote,
    kQuoted,
    kBareKey,
    kNumber,
    kWord
  };
  State To(Expect next) {
    expect_ = next;
    return State::kMore;
  }
  State Begin(char c, std::string& json);
  State Open(char c, std::string& json);
  State Close(char c, std::string& json);
  State Key(char c, std::string& json);
  State BareKey(char c, std::string& json);
  State BeginString(char c, std::string& json);
  State Quote(char c, std::string& json);
  State Quoted(char c, std::string& json);
  State InString(char c, std::string& json);
  State Escape(char c, std::string& json);
  State Hex(char c, std::string& json);
  State InNumber(char c, std::string& json);
  State InWord(char c, std::string& json);
  State Ended();

  bool BeginsString(char c) const;
  bool EndsKey(char c) const { return c == ':' || (c == '=' && literals_->key_close == ":"); }
  State EndString(std::string& json);

  const Literals* literals_;
  Expect expect_ = Expect::kValue;
  bool is_key_ = false;      // of the string
  char quote_ = '"';         // that ends it
  Choice open_;              // the token that opens it
  MarkerScanner scanner_;    // for the token that ends it
  std::string held_;         // of a word, a key or an escape, as it is written
  size_t hex_digits_ = 0;    // of the escape
  JsonScanner number_;       // that has begun
  std::string containers_;   // the ends of those that are open
  std::string before_item_;  // what comes before the next item, if there is one
};

}  // namespace moed::chat
