// The rules of router.h over rows wherever they lie: Scores and Choices are read and written by [], an entry as a whole, and
// Correction is read by [] or is null. The processor's functions and those of devices are made of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/device_code.h"
#include "core/kernels/math.h"
#include "core/kernels/router.h"

namespace moed::routing {

inline constexpr float kNever = -std::numeric_limits<float>::infinity();
static_assert(kMostGroups <= 64);

// Of a group's keys.
struct LargestKeys {
  float first = kNever;
  float second = kNever;

  MOED_DEVICE void Add(float key) {
    if (key > first) {
      second = first;
      first = key;
    } else if (key > second) {
      second = key;
    }
  }
};

// A row of scores and what ranks its experts.
template <class Scores, class Correction>
struct ScoredRow {
  const RouterShape& shape;
  Scores scores;
  Correction correction;

  MOED_DEVICE float Key(int expert) const {
    const float score = scores[expert];
    if (ChoosesByLogit(shape.scoring)) return score;
    if (score == 0) return kNever;
    return correction == nullptr ? score : score + correction[expert];
  }
  MOED_DEVICE int group_size() const { return shape.experts / shape.groups; }

  MOED_DEVICE float GroupKey(const LargestKeys& of) const {
    return shape.group_rank == GroupRank::kLargestKey || group_size() == 1 ? of.first : of.first + of.second;
  }
  MOED_DEVICE float GroupKey(int group) const {
    const int size = group_size();
    LargestKeys largest;
    for (int expert = group * size; expert < (group + 1) * size; ++expert) largest.Add(Key(expert));
    return GroupKey(largest);
  }

  // A bit for each group.
  MOED_DEVICE uint64_t KeptGroups() const {
    if (shape.kept_groups == shape.groups) return ~uint64_t{0};
    uint64_t kept = 0;
    for (int count = 0; count < shape.kept_groups; ++count) {
      int best = -1;
      float best_key = 0;
      for (int group = 0; group < shape.groups; ++group) {
        if ((kept >> group & 1) != 0) continue;
        const float key = GroupKey(group);
        if (best >= 0 && !(key > best_key)) continue;
        best = group;
        best_key = key;
      }
      kept |= uint64_t{1} << best;
    }
    return kept;
  }
};

// Highest first, ties in the order they are given in; the `top_k` choices are filled from their front.
template <class Choices>
struct BestChoices {
  Choices choices;
  int top_k;
  int filled = 0;

  MOED_DEVICE void Offer(ExpertChoice choice) {
    int at = filled;
    while (at > 0 && choice.probability > static_cast<ExpertChoice>(choices[at - 1]).probability) --at;
    if (at == top_k) return;
    filled = filled + 1 < top_k ? filled + 1 : top_k;
    for (int i = filled - 1; i > at; --i) choices[i] = static_cast<ExpertChoice>(choices[i - 1]);
    choices[at] = choice;
  }
};

template <class Row, class Choices>
MOED_DEVICE void ChooseByKey(const Row& row, Choices choices) {
  const uint64_t kept = row.KeptGroups();
  const int size = row.group_size();
  BestChoices<Choices> best{choices, row.shape.top_k};
  for (int expert = 0; expert < row.shape.experts; ++expert) {
    if ((kept >> (expert / size) & 1) != 0) best.Offer({expert, row.Key(expert)});
  }
}

template <class Choices>
MOED_DEVICE bool Chosen(Choices choices, int count, int expert) {
  for (int slot = 0; slot < count; ++slot) {
    if (static_cast<ExpertChoice>(choices[slot]).expert == expert) return true;
  }
  return false;
}

// Of slot `slot`, whose logit is `chosen`.
template <class Row, class Choices>
MOED_DEVICE float SparsemixerWeight(const Row& row, Choices choices, int slot, float chosen) {
  if (chosen == kNever) return 0;
  float sum = 0;
  for (int expert = 0; expert < row.shape.experts; ++expert) {
    const float logit = row.scores[expert];
    const float magnitude = std::fabs(logit);
    const float factor = magnitude < chosen ? chosen : magnitude;
    if (logit == kNever || (chosen - logit) / factor > 2 * row.shape.jitter || Chosen(choices, slot, expert)) continue;
    sum += Exp(logit - chosen);
  }
  return 1.0f / sum;
}

// Of the choices in their order, with the shape's epsilon.
template <class Row, class Choices>
MOED_DEVICE float SumOfWeights(const Row& row, Choices choices) {
  float sum = 0;
  for (int slot = 0; slot < row.shape.top_k; ++slot) sum += static_cast<ExpertChoice>(choices[slot]).probability;
  return sum + row.shape.epsilon;
}
template <class Choices>
MOED_DEVICE void DivideWeight(Choices choices, int slot, float sum) {
  ExpertChoice choice = choices[slot];
  choice.probability /= sum;
  choices[slot] = choice;
}

// Of slot `slot`, whose expert has this score, before it is divided by anything.
template <class Row, class Choices>
MOED_DEVICE float WeightOf(const Row& row, Choices choices, int slot, float score) {
  if (row.shape.scoring == RouterScoring::kSparsemixer) return SparsemixerWeight(row, choices, slot, score);
  return row.shape.scoring == RouterScoring::kSigmoidOfChosen ? Sigmoid(score) : score;
}

// ChooseExperts.
template <class Row, class Choices>
MOED_DEVICE void Choose(const Row& row, Choices choices) {
  const int top_k = row.shape.top_k;
  ChooseByKey(row, choices);
  for (int slot = 0; slot < top_k; ++slot) {
    ExpertChoice choice = choices[slot];
    choice.probability = WeightOf(row, choices, slot, row.scores[choice.expert]);
    choices[slot] = choice;
  }
  // Highest first; those alike stay in their order.
  BestChoices<Choices> best{choices, top_k};
  for (int slot = 0; slot < top_k; ++slot) best.Offer(static_cast<ExpertChoice>(choices[slot]));
  if (!row.shape.normalize) return;
  const float sum = SumOfWeights(row, choices);
  for (int slot = 0; slot < top_k; ++slot) DivideWeight(choices, slot, sum);
}

// Of the keys that can be chosen.
struct KeyRange {
  float lowest = -kNever;
  float highest = kNever;

  MOED_DEVICE void Add(float key) {
    if (key == kNever) return;
    lowest = key < lowest ? key : lowest;
    highest = highest < key ? key : highest;
  }
  MOED_DEVICE float RankOf(float key) const {
    const float range = highest - lowest < 1.0f ? 1.0f : highest - lowest;
    return key == kNever ? 0 : (key - lowest) / range;
  }
};

// Others are ranked by their scores as they are.
template <class Row>
MOED_DEVICE bool RanksByKey(const Row& row) {
  return row.correction != nullptr || row.shape.groups != 1;
}

// RankExperts. The row's scores are written.
template <class Row>
MOED_DEVICE void Rank(const Row& row) {
  if (!RanksByKey(row)) return;
  const uint64_t kept = row.KeptGroups();
  const int size = row.group_size();
  KeyRange range;
  for (int expert = 0; expert < row.shape.experts; ++expert) {
    const float key = (kept >> (expert / size) & 1) != 0 ? row.Key(expert) : kNever;
    row.scores[expert] = key;
    range.Add(key);
  }
  for (int expert = 0; expert < row.shape.experts; ++expert) row.scores[expert] = range.RankOf(row.scores[expert]);
}

}  // namespace moed::routing
