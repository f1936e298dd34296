#include "core/kernels/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/kernels/math.h"

namespace moed {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
static_assert(kMostGroups <= 64);

float Key(const RouterShape& shape, std::span<const float> scores, size_t expert) {
  if (shape.scoring == RouterScoring::kSparsemixer) return scores[expert];
  if (scores[expert] == 0) return kNever;
  return shape.correction == nullptr ? scores[expert] : scores[expert] + shape.correction[expert];
}

float GroupKey(const RouterShape& shape, std::span<const float> scores, int group) {
  const size_t size = scores.size() / static_cast<size_t>(shape.groups);
  float first = kNever, second = kNever;
  for (size_t expert = group * size; expert < (group + 1) * size; ++expert) {
    const float key = Key(shape, scores, expert);
    if (key > first) {
      second = first;
      first = key;
    } else if (key > second) {
      second = key;
    }
  }
  return shape.group_rank == GroupRank::kLargestKey || size == 1 ? first : first + second;
}

// A bit for each group.
uint64_t KeptGroups(const RouterShape& shape, std::span<const float> scores) {
  if (shape.kept_groups == shape.groups) return ~uint64_t{0};
  std::array<float, kMostGroups> keys;
  for (int group = 0; group < shape.groups; ++group) keys[group] = GroupKey(shape, scores, group);
  uint64_t kept = 0;
  for (int count = 0; count < shape.kept_groups; ++count) {
    int best = -1;
    for (int group = 0; group < shape.groups; ++group) {
      if ((kept >> group & 1) == 0 && (best < 0 || keys[group] > keys[best])) best = group;
    }
    kept |= uint64_t{1} << best;
  }
  return kept;
}

// Highest first, ties in the order they are given in; `choices` is filled from its front.
class BestChoices {
 public:
  explicit BestChoices(std::span<ExpertChoice> choices) : choices_(choices) {}
  void Offer(ExpertChoice choice) {
    size_t at = filled_;
    while (at > 0 && choice.probability > choices_[at - 1].probability) --at;
    if (at == choices_.size()) return;
    filled_ = std::min(filled_ + 1, choices_.size());
    for (size_t i = filled_ - 1; i > at; --i) choices_[i] = choices_[i - 1];
    choices_[at] = choice;
  }

 private:
  const std::span<ExpertChoice> choices_;
  size_t filled_ = 0;
};

void ChooseByKey(const RouterShape& shape, std::span<const float> scores, std::span<ExpertChoice> choices) {
  const uint64_t kept = KeptGroups(shape, scores);
  const size_t size = scores.size() / static_cast<size_t>(shape.groups);
  BestChoices best(choices);
  for (size_t expert = 0; expert < scores.size(); ++expert) {
    if ((kept >> (expert / size) & 1) == 0) continue;
    best.Offer({static_cast<int32_t>(expert), Key(shape, scores, expert)});
  }
}

bool Chosen(std::span<const ExpertChoice> choices, size_t expert) {
  return std::any_of(choices.begin(), choices.end(),
                     [&](const ExpertChoice& choice) { return choice.expert == static_cast<int32_t>(expert); });
}

// Of the one that was chosen after `before`.
float SparsemixerWeight(const RouterShape& shape, std::span<const float> logits, std::span<const ExpertChoice> before,
                        float chosen) {
  if (chosen == kNever) return 0;
  float sum = 0;
  for (size_t expert = 0; expert < logits.size(); ++expert) {
    const float logit = logits[expert];
    const float factor = std::max(std::fabs(logit), chosen);
    if (logit == kNever || (chosen - logit) / factor > 2 * shape.jitter || Chosen(before, expert)) continue;
    sum += Exp(logit - chosen);
  }
  return 1.0f / sum;
}

void WeighSparsemixer(const RouterShape& shape, std::span<const float> logits, std::span<ExpertChoice> choices) {
  for (size_t slot = 0; slot < choices.size(); ++slot) {
    choices[slot].probability = SparsemixerWeight(shape, logits, choices.first(slot), choices[slot].probability);
  }
}

// Highest first; those alike stay in their order.
void Sort(std::span<ExpertChoice> choices) {
  BestChoices best(choices);
  for (size_t slot = 0; slot < choices.size(); ++slot) best.Offer(ExpertChoice(choices[slot]));
}

void Normalize(float epsilon, std::span<ExpertChoice> choices) {
  float sum = 0;
  for (const ExpertChoice& choice : choices) sum += choice.probability;
  sum += epsilon;
  for (ExpertChoice& choice : choices) choice.probability /= sum;
}

}  // namespace

void ScoreExperts(const RouterShape& shape, std::span<float> logits) {
  if (shape.scoring != RouterScoring::kSigmoid) return;
  for (float& logit : logits) logit = Sigmoid(logit);
}

void ChooseExperts(const RouterShape& shape, std::span<const float> scores, std::span<ExpertChoice> choices) {
  ChooseByKey(shape, scores, choices);
  if (shape.scoring == RouterScoring::kSparsemixer) {
    WeighSparsemixer(shape, scores, choices);
  } else {
    for (ExpertChoice& choice : choices) choice.probability = scores[choice.expert];
  }
  Sort(choices);
  if (shape.normalize) Normalize(shape.epsilon, choices);
}

void RankExperts(const RouterShape& shape, std::span<float> scores) {
  if (shape.correction == nullptr && shape.groups == 1) return;
  const uint64_t kept = KeptGroups(shape, scores);
  const size_t size = scores.size() / static_cast<size_t>(shape.groups);
  float lowest = -kNever, highest = kNever;
  for (size_t expert = 0; expert < scores.size(); ++expert) {
    const float key = kept >> (expert / size) & 1 ? Key(shape, scores, expert) : kNever;
    scores[expert] = key;
    if (key == kNever) continue;
    lowest = std::min(lowest, key);
    highest = std::max(highest, key);
  }
  const float range = std::max(highest - lowest, 1.0f);
  for (float& score : scores) score = score == kNever ? 0 : (score - lowest) / range;
}

}  // namespace moed
