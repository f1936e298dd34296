// A vocabulary as a tree of bytes: what tokens begin with is looked at once for all of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/ids.h"
#include "core/tokenizer/tokenizer.h"

namespace moed::grammar {

// Stands before the name of a special token, in the bytes that programs are about: it is in no UTF-8, so that what is text never
// allows a special token.
constexpr uint8_t kSpecialByte = 0xff;
// The token as programs see it.
std::string ProgramBytes(const Tokenizer& tokenizer, TokenId token);

// Immutable, thread-safe.
class VocabularyTrie {
 public:
  struct Node {
    uint32_t end;    // the nodes of its subtree are those before
    int32_t token;   // that ends here, or -1
    uint16_t depth;  // bytes up to here
    uint8_t byte;
  };

  using Token = std::pair<std::string, int32_t>;  // its bytes, 1 to 65,535, and its id

  VocabularyTrie(std::vector<Token> tokens, int vocabulary);
  // Of the tokens below `vocabulary` that are not empty, as programs see them.
  VocabularyTrie(const Tokenizer& tokenizer, int vocabulary);

  const std::vector<Node>& nodes() const { return nodes_; }  // parents first, children by byte
  int deepest() const { return deepest_; }
  int vocabulary() const { return vocabulary_; }
  // Whether there is a token of exactly these bytes.
  bool Has(std::string_view bytes) const;
  // Another token of the same bytes, or -1.
  int32_t NextOfSameBytes(int32_t token) const {
    const auto found = same_.find(token);
    return found == same_.end() ? -1 : found->second;
  }
  uint64_t bytes() const;
  // Of a mask over the vocabulary.
  size_t mask_words() const { return (static_cast<size_t>(vocabulary_) + 63) / 64; }

 private:
  std::vector<Node> nodes_;
  absl::flat_hash_map<int32_t, int32_t> same_;
  int deepest_ = 0;
  int vocabulary_;
};

}  // namespace moed::grammar
