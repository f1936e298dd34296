// What the predictors that ask gates ahead have in common.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/ids.h"
#include "core/expert/predictors/predictor.h"

namespace moed {

// The gate input seen last of each live sequence. Not synchronised.
class GateInputs {
 public:
  explicit GateInputs(int hidden);

  void Start(SequenceId sequence) { inputs_[sequence].hidden.resize(hidden_); }
  void End(SequenceId sequence) { inputs_.erase(sequence); }
  void Set(SequenceId sequence, LayerId layer, std::span<const float> hidden);
  // Empty when the sequence is unknown or was not seen at `layer` last. (hidden)
  std::span<const float> At(SequenceId sequence, LayerId layer) const;

  size_t memory_bytes() const { return inputs_.size() * SequenceBytes(static_cast<int>(hidden_)); }
  static size_t SequenceBytes(int hidden) { return sizeof(Input) + static_cast<size_t>(hidden) * sizeof(float); }

 private:
  struct Input {
    std::optional<LayerId> layer;  // where `hidden` was seen
    std::vector<float> hidden;
  };
  const size_t hidden_;
  absl::flat_hash_map<SequenceId, Input> inputs_;
};

// The 75th percentile, by linear interpolation between the two nearest ranks. `values` (at least one) is reordered.
float UpperQuartile(std::span<float> values);

// Highest probability first, then lowest expert.
void SortBestFirst(std::span<Guess> guesses);

}  // namespace moed
