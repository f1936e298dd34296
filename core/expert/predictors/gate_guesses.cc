#include "core/expert/predictors/gate_guesses.h"

#include <algorithm>

#include "core/base/check.h"

namespace moed {

GateInputs::GateInputs(int hidden) : hidden_(static_cast<size_t>(hidden)) { MOED_CHECK(hidden > 0); }

void GateInputs::Set(SequenceId sequence, LayerId layer, std::span<const float> hidden) {
  const auto input = inputs_.find(sequence);
  MOED_CHECK(input != inputs_.end() && hidden.size() == hidden_);
  input->second.layer = layer;
  std::ranges::copy(hidden, input->second.hidden.begin());
}

std::span<const float> GateInputs::At(SequenceId sequence, LayerId layer) const {
  const auto input = inputs_.find(sequence);
  if (input == inputs_.end() || input->second.layer != layer) return {};
  return input->second.hidden;
}

float UpperQuartile(std::span<float> values) {
  const size_t scaled = 3 * (values.size() - 1);
  const auto lower = values.begin() + static_cast<std::ptrdiff_t>(scaled / 4);
  std::nth_element(values.begin(), lower, values.end());
  if (scaled % 4 == 0) return *lower;
  const float above = *std::min_element(lower + 1, values.end());
  return *lower + (above - *lower) * static_cast<float>(scaled % 4) / 4;
}

void SortBestFirst(std::span<Guess> guesses) {
  std::ranges::sort(guesses, [](const Guess& a, const Guess& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.key < b.key;
  });
}

}  // namespace moed
