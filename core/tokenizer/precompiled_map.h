// SentencePiece's compiled normalisation: which strings become which. A double-array trie (Aoe, 1989; darts-clone's layout) over
// the former, whose values are where the latter begin.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "core/tokenizer/blob.h"

namespace moed {

// Immutable, thread-safe.
class PrecompiledMap {
 public:
  // The bytes as SentencePiece writes them: u32 bytes of the trie, the trie, then strings that each end with a zero byte.
  // INVALID_ARGUMENT for what is none; a damaged trie finds less and never reads beyond it.
  static absl::StatusOr<PrecompiledMap> Make(std::string bytes);
  PrecompiledMap(PrecompiledMap&&) = default;
  PrecompiledMap& operator=(PrecompiledMap&&) = default;

  // `text` is valid UTF-8. As Hugging Face does it: character by character, or a grapheme of fewer than 6 bytes at once; each
  // becomes what the shortest of its beginnings that the map has becomes. Stops beyond `most` bytes.
  std::string Apply(std::string_view text, size_t most) const;
  size_t memory_bytes() const { return bytes_.capacity(); }

 private:
  PrecompiledMap(std::string bytes, size_t trie_bytes) : bytes_(std::move(bytes)), trie_bytes_(trie_bytes) {}
  U32Array units() const { return U32Array(std::string_view(bytes_).substr(sizeof(uint32_t), trie_bytes_)); }
  // What the shortest beginning of `text` that is in the map becomes.
  std::optional<std::string_view> Find(std::string_view text) const;
  void AppendGrapheme(std::string_view grapheme, std::string& out) const;

  std::string bytes_;
  size_t trie_bytes_;
};

}  // namespace moed
