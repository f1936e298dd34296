// Whether texts follow a grammar.
#pragma once

#include <memory>
#include <string_view>

#include "core/grammar/grammar.h"
#include "core/grammar/matcher.h"
#include "tests/tokenizer/tokenizers.h"

namespace moed::grammar {

constexpr int kDemoVocabulary = 4160;  // some more than the tokenizer has, as models do

inline const VocabularyTrie& DemoTrie() {
  static const VocabularyTrie trie(DemoTokenizer(), kDemoVocabulary);
  return trie;
}

inline Matcher MatcherOf(std::shared_ptr<const Grammar> grammar) {
  return Matcher(std::move(grammar), DemoTrie(), MatcherCacheBytes(kDemoVocabulary));
}

inline bool Follows(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher = MatcherOf(grammar);
  return matcher.Accept(text).ok() && matcher.MayEnd();
}

}  // namespace moed::grammar
