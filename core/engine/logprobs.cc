#include "core/engine/logprobs.h"

#include <algorithm>
#include <cmath>

namespace moed {

double LogNormalizer(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(logit - highest);
  return highest + std::log(sum);
}

std::vector<std::pair<TokenId, float>> TopLogprobs(std::span<const float> logits, double log_normalizer, int count) {
  const size_t wanted = std::min<size_t>(count, logits.size());
  std::vector<std::pair<TokenId, float>> best;  // logits while collecting
  best.reserve(wanted + 1);
  if (wanted == 0) return best;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (best.size() == wanted && !(logits[i] > best.back().second)) continue;
    // Ids ascend, so the place after all equals keeps the lower id first.
    auto place = std::find_if(best.begin(), best.end(), [&](const auto& other) { return logits[i] > other.second; });
    best.insert(place, {TokenId(static_cast<int32_t>(i)), logits[i]});
    if (best.size() > wanted) best.pop_back();
  }
  for (auto& [token, value] : best) value = static_cast<float>(value - log_normalizer);
  return best;
}

}  // namespace moed
