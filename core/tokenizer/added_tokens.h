// Added tokens cut the text before anything else sees it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/base/byte_range.h"
#include "core/tokenizer/text_pattern.h"
#include "core/tokenizer/tokenizer_spec.h"

namespace moed {

// Finds a set of tokens: leftmost first, of those that begin together the longest. Immutable, thread-safe.
class AddedTokenMatcher {
 public:
  // A stretch of text that is one added token, or has none in it.
  struct Section {
    std::string_view text;
    std::optional<uint32_t> token;
  };

  // Where special tokens are found: nowhere, or wherever none of their bytes is foreign.
  struct SpecialScope {
    bool nowhere = false;
    std::span<const ByteRange> foreign = {};  // of the text, ascending
  };

  // Takes those of `tokens` whose `normalized` is as given.
  static absl::StatusOr<AddedTokenMatcher> Make(const std::vector<AddedToken>& tokens, bool normalized);

  bool empty() const { return tokens_.empty(); }
  bool has_special() const;
  // Calls `section` for each non-empty one in order until one fails. Where special tokens are not found they are text like any
  // other.
  absl::Status Split(std::string_view text, const SpecialScope& special,
                     absl::FunctionRef<absl::Status(const Section&)> section) const;

  size_t memory_bytes() const;

 private:
  const AddedToken* LongestAt(std::string_view text) const;
  // The same where special tokens have a scope. `at`: a place behind what is found, or where to look next.
  const AddedToken* AllowedAt(std::string_view text, const SpecialScope& special, size_t& at) const;
  absl::StatusOr<bool> IsSingleWord(std::string_view text, size_t begin, size_t end) const;

  std::vector<AddedToken> tokens_;          // by content, each content once
  std::array<uint32_t, 257> first_byte_{};  // tokens_ that begin with byte b: [first_byte_[b], first_byte_[b + 1])
  std::optional<TextPattern> word_character_;
};

}  // namespace moed
