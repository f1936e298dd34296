// A weight for every pair of experts of a layer: what the use of one says of the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/expert/learning/learned_state.h"
#include "core/expert/part_context.h"

namespace moed {

// Fixed point of 16 bits, in steps of 1/4096 up to 8: half of what a float takes, so that layers of 512 experts have pairs in a
// few gigabytes. Not synchronised.
class PairWeights {
 public:
  // Nothing is kept where not `kept`: all weights are 0.
  PairWeights(const ExpertModelShape& shape, bool kept);
  static size_t Bytes(const ExpertModelShape& shape);

  // Adds the row of `from`, weighed, to the log odds of the layer's experts.
  void Add(int position, size_t from, float weight, std::span<float> log_odds) const;
  // Moves the row by `step` times the experts' errors.
  void Learn(int position, size_t from, float step, std::span<const float> errors);

  void VisitLearned(LearnedState& state) { state.Values(weights_, kAnything); }
  size_t memory_bytes() const { return weights_.size() * sizeof(int16_t); }

 private:
  const size_t experts_;
  std::vector<int16_t> weights_;  // (layers, from, experts), or none
};

}  // namespace moed
