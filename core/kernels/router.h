// Which experts a token goes to, as every backend chooses them. Pure.
//
// An expert's score comes from its logit; it is chosen by its key, score + correction, among the groups that are kept; what its
// output is multiplied with is its score again, divided by the sum of the chosen ones' where the shape says so. An expert whose
// score is 0 was masked: it is taken only when no other is left.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/expert_choice.h"

namespace moed {

enum class RouterScoring : uint8_t {
  kSoftmax,  // of all logits
  kSigmoid,  // of each logit
  // The logit itself; the weight of a choice is its share in a softmax over the experts that were not chosen before it and whose
  // logits lie within 2 * jitter of it, relative to the larger magnitude of the two.
  kSparsemixer,
  kSigmoidOfChosen,  // the logit itself; the weight of a choice is its sigmoid
};

// Whether scores are logits.
constexpr bool ChoosesByLogit(RouterScoring scoring) {
  return scoring == RouterScoring::kSparsemixer || scoring == RouterScoring::kSigmoidOfChosen;
}

// What a group is ranked by.
enum class GroupRank : uint8_t { kLargestKey, kTwoLargestKeys };

inline constexpr int kMostGroups = 64;

struct RouterShape {
  int experts = 0;
  int top_k = 0;
  bool normalize = false;  // the weights of a token's choices are divided by their sum + epsilon
  RouterScoring scoring = RouterScoring::kSoftmax;
  const float* correction = nullptr;  // (experts), added for the choice alone; null: none
  int groups = 1;                     // of experts / groups neighbours each, at most kMostGroups
  int kept_groups = 1;                // the best of them; they hold at least top_k experts
  GroupRank group_rank = GroupRank::kLargestKey;
  float epsilon = 0;
  float jitter = 0;  // kSparsemixer
};

// Logits that are no softmax become scores, in place: sigmoids, or themselves. (experts)
void ScoreExperts(const RouterShape& shape, std::span<float> logits);

// The experts of one token with their weights: chosen by key, ties to the lower index, then highest weight first, those alike as
// they were chosen. The sum of the weights is added in that order. scores (experts), choices (top_k).
void ChooseExperts(const RouterShape& shape, std::span<const float> scores, std::span<ExpertChoice> choices);

// Scores become numbers from 0 to 1 that order the experts as the choice does: probabilities where the router has them, otherwise
// keys above the lowest of them; 0 outside the kept groups. In place.
void RankExperts(const RouterShape& shape, std::span<float> scores);

}  // namespace moed
