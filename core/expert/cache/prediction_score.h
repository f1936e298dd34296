// How good are the guesses? Compared with what the router chose, whatever was done with them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/expert/expert_index.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/predictors/predictor.h"
#include "core/expert/routing.h"
#include "core/expert/stats.h"

namespace moed {

// Distinct experts of one layer of one step count once. Not synchronised.
class PredictionScore {
 public:
  explicit PredictionScore(const ExpertIndex& experts) : index_(experts), guessed_(experts.size()), marked_(experts.layers()) {}

  // Guesses of at least this probability, for layers whose router has not run yet.
  void OnGuesses(std::span<const Guess> guesses, float min_probability);
  // The router ran: what was guessed for this layer is over.
  void OnRouted(LayerId layer, Phase phase, std::span<const WantedExpert> wanted);

  const std::array<PredictionCounts, kPhases>& counts() const { return counts_; }
  size_t memory_bytes() const;

 private:
  const ExpertIndex index_;                   // one precision
  std::vector<uint8_t> guessed_;              // by index_
  std::vector<std::vector<int32_t>> marked_;  // (layers): experts whose guessed_ is set
  std::array<PredictionCounts, kPhases> counts_{};
};

}  // namespace moed
