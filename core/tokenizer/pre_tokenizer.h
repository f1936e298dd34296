// Text to the words inside which BPE merges.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/tokenizer/text_pattern.h"
#include "core/tokenizer/tokenizer_spec.h"

namespace moed {

// Immutable, thread-safe.
class PreTokenizer {
 public:
  static absl::StatusOr<PreTokenizer> Make(std::span<const PreTokenizerStep> steps);

  // Calls `word` for each non-empty word in order until one fails; the view is valid during the call. `text` is valid UTF-8.
  // `text_begins`: nothing stands before `text`, not even an added token.
  absl::Status Split(std::string_view text, bool text_begins, absl::FunctionRef<absl::Status(std::string_view)> word) const;

  size_t memory_bytes() const;

 private:
  struct Step {
    PreTokenizerStep spec;
    std::optional<TextPattern> pattern;  // none: no split
  };
  class Run;

  std::vector<Step> steps_;
};

}  // namespace moed
