// What a layer of a step wants, gathered from the routing of its tokens: every distinct expert once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/expert/fidelity/rule.h"
#include "core/expert/routing.h"

namespace moed {

// One sequence's part in the use of one expert.
struct SequenceUse {
  SequenceId sequence;
  float probability = 0;          // highest among the sequence's tokens
  int rank = 0;                   // best among them
  Phase phase = Phase::kPrefill;  // decode when any of these tokens is
  int tokens = 1;                 // how many these are
};

// Reusable; allocates only when a layer is larger than all before it. Not synchronised.
class DemandSet {
 public:
  explicit DemandSet(int experts_per_layer) : position_(experts_per_layer, -1) {}

  void Collect(const LayerRouting& routing);

  // In order of first appearance, tokens first, then ranks.
  std::span<const WantedExpert> experts() const { return experts_; }
  // Expert -> index into experts(), -1 for the others.
  std::span<const int32_t> positions() const { return position_; }
  // The loosest of the step's tokens.
  Fidelity fidelity() const { return fidelity_; }
  // Of experts()[i]: one entry a sequence.
  std::span<const SequenceUse> UsesOf(size_t i) const {
    return std::span(uses_).subspan(first_use_[i], first_use_[i + 1] - first_use_[i]);
  }
  // Decode when any token of the step that wants it is.
  Phase PhaseOf(size_t i) const { return PhaseOf(UsesOf(i)); }
  // Decode when any token of the step is.
  Phase phase() const { return PhaseOf(std::span<const SequenceUse>(uses_)); }
  // In order of first appearance.
  std::span<const SequenceId> sequences() const { return sequences_; }
  // Of sequences()[i].
  Fidelity FidelityOf(size_t i) const { return sequence_fidelity_[i]; }

 private:
  struct Choice {
    int32_t position;  // in experts_
    SequenceUse use;
  };

  static Phase PhaseOf(std::span<const SequenceUse> uses);
  void AddToken(const TokenRouting& token);
  void MergeUses();

  std::vector<int32_t> position_;  // expert -> index into experts_, or -1
  Fidelity fidelity_;
  std::vector<WantedExpert> experts_;
  std::vector<Choice> choices_;
  std::vector<SequenceUse> uses_;
  std::vector<size_t> first_use_;  // one more than experts_
  std::vector<SequenceId> sequences_;
  std::vector<Fidelity> sequence_fidelity_;
};

}  // namespace moed
