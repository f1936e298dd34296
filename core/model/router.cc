#include "core/model/router.h"

#include <algorithm>
#include <utility>

namespace moed {

void ChooseExperts(std::span<const float> probabilities, bool normalize, std::span<ExpertChoice> choices) {
  size_t filled = 0;
  for (size_t expert = 0; expert < probabilities.size(); ++expert) {
    size_t at = filled;
    while (at > 0 && probabilities[expert] > choices[at - 1].probability) --at;
    if (at == choices.size()) continue;
    filled = std::min(filled + 1, choices.size());
    for (size_t i = filled - 1; i > at; --i) choices[i] = choices[i - 1];
    choices[at] = {static_cast<int32_t>(expert), probabilities[expert]};
  }
  if (!normalize) return;
  float sum = 0;
  for (const ExpertChoice& choice : choices) sum += choice.probability;
  for (ExpertChoice& choice : choices) choice.probability /= sum;
}

void GroupByExpert(std::span<const ExpertChoice> choices, std::span<int32_t> begin, std::span<int32_t> slots) {
  // First begin[e + 1] counts, then it is where e's next slot goes, which ends as where e ends.
  std::fill(begin.begin(), begin.end(), 0);
  for (const ExpertChoice& choice : choices) ++begin[choice.expert + 1];
  int32_t total = 0;
  for (size_t i = 1; i < begin.size(); ++i) total += std::exchange(begin[i], total);
  for (size_t i = 0; i < choices.size(); ++i) slots[begin[choices[i].expert + 1]++] = static_cast<int32_t>(i);
}

}  // namespace moed
