// Takes special tokens that mean nothing in an answer out of its text.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/tokenizer/tokenizer.h"

namespace moed {

// Of one answer. What other tokens spell stays, whatever it is. Not synchronised.
class SpecialTokenFilter {
 public:
  // `kept`: special tokens that are part of one of these stay.
  SpecialTokenFilter(const Tokenizer& tokenizer, std::vector<std::string> kept) : tokenizer_(tokenizer), kept_(std::move(kept)) {}

  // The next tokens, and the next text, in which they may come later. Returns what of all text is known to stay.
  std::string Put(std::span<const TokenInfo> tokens, std::string_view text);
  // What is held back.
  std::string Take() { return std::exchange(held_, {}); }

 private:
  bool Keeps(std::string_view spelled) const;
  size_t BytesThatMayBegin(std::string_view spelled) const;

  const Tokenizer& tokenizer_;
  const std::vector<std::string> kept_;
  std::deque<std::string> dropped_;  // whose text is yet to come
  std::string held_;                 // may be the begin of the first of them
};

}  // namespace moed
