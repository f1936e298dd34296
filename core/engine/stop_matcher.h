// Finds stop strings in a text that arrives in pieces.
//
// The stop string that ends first wins; of those that end at the same byte, the longest. So the outcome does not depend on where
// the pieces were cut. Text that may be the beginning of a stop string is held back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moed {

// Pieces and stop strings are whole UTF-8, and so is everything released. Not synchronised.
class StopMatcher {
 public:
  // `stop_strings`: not empty ones. `include`: the match is part of the text.
  StopMatcher(std::vector<std::string> stop_strings, bool include) : stop_strings_(std::move(stop_strings)), include_(include) {}

  // What can be released now. After a match everything is ignored. Unless it `may_match` no stop string ends in the piece; one
  // that begins there may still end in a later one.
  std::string Push(std::string_view piece, bool may_match = true);
  // What was held back, once no more text comes. Empty after a match.
  std::string Flush();

  bool matched() const { return match_ >= 0; }
  const std::string& match() const { return stop_strings_[match_]; }  // only when matched

 private:
  int LongestEndingAt(size_t end) const;  // index, or -1
  size_t HeldBytes() const;               // longest end of pending_ that begins a stop string

  const std::vector<std::string> stop_strings_;
  const bool include_;
  int match_ = -1;
  std::string pending_;
};

}  // namespace moed
