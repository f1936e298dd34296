// What planners measure losses on: windows of a text, or pairs of a source and its answer.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/model/spec.h"
#include "core/tokenizer/tokenizer.h"

namespace moed {

class ScoredText {
 public:
  struct Window {
    std::span<const TokenId> source;  // of an encoder-decoder; of a decoder none
    std::span<const TokenId> tokens;  // the first is given, the others are scored; >= 2
  };

  // Of a text: `tokens` of its tokens, from the start, cut into windows; a rest of one token is no window. INVALID_ARGUMENT for
  // what is no UTF-8, for fewer tokens, and for a window beyond the model's context.
  static absl::StatusOr<ScoredText> OfText(std::string_view text, const Tokenizer& tokenizer, const ModelSpec& spec, int tokens,
                                           int window);
  // For an encoder-decoder: JSON lines {"source": [ids], "target": [ids]}, whole ones from the start while their targets have no
  // more than `tokens` tokens together. INVALID_ARGUMENT with the line's number for any other line, for ids beyond the
  // vocabulary, and where there is no whole pair.
  static absl::StatusOr<ScoredText> OfPairs(std::string_view lines, const ModelSpec& spec, int tokens);

  int windows() const { return static_cast<int>(cuts_.size()); }
  Window window(int number) const;
  int scored(int window) const { return cuts_[window].tokens - 1; }
  int scored_tokens() const;
  int MostStepTokens() const;  // of a source or of a window
  int MostContext() const;     // of both together
  uint64_t Hash() const;       // of the tokens and how they are cut

 private:
  struct Cut {
    size_t first = 0;
    int source = 0;
    int tokens = 0;
  };
  std::vector<TokenId> tokens_;  // sources lie before their windows
  std::vector<Cut> cuts_;
};

}  // namespace moed
