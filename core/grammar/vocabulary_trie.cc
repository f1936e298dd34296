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
    std::string bytes = ProgramBytes(tokenizer, TokenId(id));
    if (!bytes.empty() && bytes.size() <= kMostTokenBytes) tokens.emplace_back(std::move(bytes), id);
  }
  return tokens;
}

}  // namespace

std::string ProgramBytes(const Tokenizer& tokenizer, TokenId token) {
  constexpr char kSpecial = static_cast<char>(kSpecialByte);
  std::string bytes = tokenizer.TokenBytes(token);
  if (tokenizer.IsSpecial(token)) return bytes.empty() ? bytes : kSpecial + bytes;
  return bytes.find(kSpecial) == std::string::npos ? bytes : "";  // byte-level vocabularies have a token for each byte
}

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

bool VocabularyTrie::Has(std::string_view bytes) const {
  size_t at = 0, end = nodes_.size();
  for (size_t depth = 0; depth < bytes.size(); ++depth) {
    while (at < end && nodes_[at].byte != static_cast<uint8_t>(bytes[depth])) at = nodes_[at].end;
    if (at >= end) return false;
    if (depth + 1 == bytes.size()) return nodes_[at].token >= 0;
    end = nodes_[at++].end;
  }
  return false;
}

uint64_t VocabularyTrie::bytes() const {
  return sizeof(*this) + nodes_.capacity() * sizeof(Node) + same_.capacity() * (2 * sizeof(int32_t) + 1);
}

}  // namespace moed::grammar
