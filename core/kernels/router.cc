#include "core/kernels/router.h"

#include "core/kernels/router_choice.h"

namespace moed {
namespace {

template <class Score>
routing::ScoredRow<Score*, const float*> RowOf(const RouterShape& shape, std::span<Score> scores) {
  return {shape, scores.data(), shape.correction};
}

}  // namespace

void ScoreExperts(const RouterShape& shape, std::span<float> logits) {
  if (shape.scoring != RouterScoring::kSigmoid) return;
  for (float& logit : logits) logit = Sigmoid(logit);
}

void ChooseExperts(const RouterShape& shape, std::span<const float> scores, std::span<ExpertChoice> choices) {
  routing::Choose(RowOf(shape, scores), choices.data());
}

void RankExperts(const RouterShape& shape, std::span<float> scores) { routing::Rank(RowOf(shape, scores)); }

}  // namespace moed
