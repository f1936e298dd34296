// Matchers for the requests of a model, within memory that is set aside for them.
#pragma once

#include <climits>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/byte_share.h"
#include "core/grammar/matcher.h"
#include "core/grammar/syntax.h"
#include "core/grammar/vocabulary_trie.h"

namespace moed::grammar {

// Thread-safe.
class MatcherPool {
 public:
  // Holds at most `most_bytes`, the vocabulary included; the tokenizer is not kept. A share that is too small for the vocabulary
  // makes no matcher, and holds nothing.
  MatcherPool(const Tokenizer& tokenizer, int vocabulary, uint64_t most_bytes);

  // Of texts of at most so many tokens. INVALID_ARGUMENT for what is no format, or needs more memory than there is.
  // RESOURCE_EXHAUSTED while others have it. Both begin with the syntax's field. What is made must not outlive the pool.
  absl::StatusOr<std::shared_ptr<Matcher>> Make(const Syntax& syntax, int most_tokens = INT_MAX);

 private:
  absl::StatusOr<ByteShare::Held> Take(uint64_t bytes, const std::string& field);

  const int vocabulary_;
  std::unique_ptr<const VocabularyTrie> trie_;  // null: the share is too small
  ByteShare matchers_;
};

}  // namespace moed::grammar
