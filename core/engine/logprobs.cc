#include "core/engine/logprobs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/exponential.h"

namespace moed {

// Lane by lane, so that compilers take several at once.
double LogNormalizer(std::span<const float> logits) {
  constexpr size_t kLanes = 8;
  constexpr float kLowest = -87;  // what is less adds nothing
  const float highest = *std::max_element(logits.begin(), logits.end());
  std::array<double, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += Exponential(std::max(logits[i + lane] - highest, kLowest));
  }
  for (; i < logits.size(); ++i) sums[i % kLanes] += Exponential(std::max(logits[i] - highest, kLowest));
  double sum = 0;
  for (const double lane : sums) sum += lane;
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
