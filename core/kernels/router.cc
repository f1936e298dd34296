#include "core/kernels/router.h"

#include <algorithm>
#include <cstddef>

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

}  // namespace moed
