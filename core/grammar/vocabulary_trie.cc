#include "core/grammar/vocabulary_trie.h"

#include <algorithm>
#include <string>
#include <utility>

namespace moed::grammar {
namespace {

constexpr size_t kMostTokenBytes = UINT16_MAX;

std::vector<VocabularyTrie::Token> TextTokens(const Tokenizer& tokenizer, int vocabulary) {
  std::vector<VocabularyTrie::Token> tokens;
  const int count = std::min(vocabulary, tokenizer.vocabulary_size());
  tokens.reserve(count);
  for (int32_t id = 0; id < count; ++id) {
    if (tokenizer.IsSpecial(TokenId(id))) continue;
    std::string bytes = tokenizer.TokenBytes(TokenId(id));
    if (!bytes.empty() && bytes.size() <= kMostTokenBytes) tokens.emplace_back(std::move(bytes), id);
  }
  return tokens;
}

}  // namespace

VocabularyTrie::VocabularyTrie(const Tokenizer& tokenizer, int vocabulary)
    : VocabularyTrie(TextTokens(tokenizer, vocabulary), vocabulary) {}

VocabularyTrie::VocabularyTrie(std::vector<Token> tokens, int vocabulary) : vocabulary_(vocabulary) {
  std::sort(tokens.begin(), tokens.end());
  std::vector<uint32_t> path;  // nodes of the last token's bytes
  const std::string none;
  const std::string* last = &none;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
  };
  for (const auto& [bytes, id] : tokens) {
    if (bytes == *last) {
      int32_t& token = nodes_[path.back()].token;
      same_[id] = std::exchange(token, id);
      continue;
    }
    close(std::mismatch(bytes.begin(), bytes.end(), last->begin(), last->end()).first - bytes.begin());
    for (size_t i = path.size(); i < bytes.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, -1, static_cast<uint16_t>(i + 1), static_cast<uint8_t>(bytes[i])});
    }
    nodes_[path.back()].token = id;
    deepest_ = std::max(deepest_, static_cast<int>(bytes.size()));
    last = &bytes;
  }
  close(0);
  nodes_.shrink_to_fit();
}

uint64_t VocabularyTrie::bytes() const {
  return sizeof(*this) + nodes_.capacity() * sizeof(Node) + same_.capacity() * (2 * sizeof(int32_t) + 1);
}

}  // namespace moed::grammar
