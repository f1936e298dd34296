// Text to the text that is tokenised.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/tokenizer/precompiled_map.h"
#include "core/tokenizer/text_pattern.h"
#include "core/tokenizer/tokenizer_spec.h"

namespace moed {

// Unicode's canonical composition of valid UTF-8. O(n log n) whatever the text.
std::string ComposeCanonically(std::string_view text);

// Immutable, thread-safe.
class Normalizer {
 public:
  static absl::StatusOr<Normalizer> Make(std::span<const NormalizerStep> steps);

  bool empty() const { return steps_.empty(); }
  // `text` is valid UTF-8. Empty text stays empty. INVALID_ARGUMENT where it would grow beyond bounds.
  absl::StatusOr<std::string> Apply(std::string_view text) const;
  size_t memory_bytes() const;

 private:
  struct Step {
    NormalizerStep::Kind kind;
    std::string content;
    std::vector<TextPattern> pattern;  // kReplace: one
    std::vector<PrecompiledMap> map;   // kPrecompiled: one
  };
  // Stops beyond `most` bytes.
  static absl::StatusOr<std::string> Replace(const Step& step, std::string_view text, size_t most);

  std::vector<Step> steps_;
};

}  // namespace moed
