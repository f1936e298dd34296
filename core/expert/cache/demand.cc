#include "core/expert/cache/demand.h"

#include <algorithm>

#include "core/base/check.h"

namespace moed {

void DemandSet::Collect(const LayerRouting& routing) {
  for (const WantedExpert& wanted : experts_) position_[wanted.expert] = -1;
  experts_.clear();
  choices_.clear();
  sequences_.clear();
  sequence_fidelity_.clear();
  fidelity_ = Fidelity::Exact();
  for (const TokenRouting& token : routing.tokens) AddToken(token);
  MergeUses();
}

void DemandSet::AddToken(const TokenRouting& token) {
  if (std::find(sequences_.begin(), sequences_.end(), token.sequence) == sequences_.end()) {
    sequences_.push_back(token.sequence);
    sequence_fidelity_.push_back(token.fidelity);
  }
  fidelity_ = std::max(fidelity_, token.fidelity);
  const float mass = GateMass(token);
  float mass_before = 0;
  int rank = 0;
  for (const ExpertChoice& choice : token.choices) {
    MOED_CHECK(choice.expert >= 0 && static_cast<size_t>(choice.expert) < position_.size());
    if (token.masked > 0 && choice.probability == 0) continue;
    int32_t& position = position_[choice.expert];
    const float share = mass > 0 ? choice.probability / mass : 0;
    if (position < 0) {
      position = static_cast<int32_t>(experts_.size());
      experts_.push_back({choice.expert, share, mass_before, 1, token.fidelity});
    } else {
      WantedExpert& wanted = experts_[position];
      wanted.share = std::max(wanted.share, share);
      wanted.mass_before = std::min(wanted.mass_before, mass_before);
      wanted.fidelity = std::min(wanted.fidelity, token.fidelity);
      ++wanted.tokens;
    }
    choices_.push_back({position, {token.sequence, choice.probability, rank, token.phase}});
    mass_before += share;
    ++rank;
  }
}

void DemandSet::MergeUses() {
  std::sort(choices_.begin(), choices_.end(), [](const Choice& a, const Choice& b) {
    return a.position != b.position ? a.position < b.position : a.use.sequence < b.use.sequence;
  });
  uses_.clear();
  first_use_.assign(1, 0);
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    const bool same_expert = i > 0 && choices_[i - 1].position == choice.position;
    if (same_expert && uses_.back().sequence == choice.use.sequence) {
      SequenceUse& use = uses_.back();
      use.probability = std::max(use.probability, choice.use.probability);
      use.rank = std::min(use.rank, choice.use.rank);
      use.phase = std::max(use.phase, choice.use.phase);
      ++use.tokens;
      continue;
    }
    if (i > 0 && !same_expert) first_use_.push_back(uses_.size());
    uses_.push_back(choice.use);
  }
  if (!choices_.empty()) first_use_.push_back(uses_.size());
}

Phase DemandSet::PhaseOf(std::span<const SequenceUse> uses) {
  const bool decode = std::any_of(uses.begin(), uses.end(), [](const SequenceUse& use) { return use.phase == Phase::kDecode; });
  return decode ? Phase::kDecode : Phase::kPrefill;
}

}  // namespace moed
