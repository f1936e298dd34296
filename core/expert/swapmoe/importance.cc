#include "core/expert/swapmoe/importance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/base/check.h"
#include "core/expert/top_experts.h"

namespace moed {
namespace {

// In a fixed order of several sums, which a compiler may vectorise.
double SquaredNorm(std::span<const float> x) {
  std::array<float, 16> sums{};
  size_t i = 0;
  for (; i + sums.size() <= x.size(); i += sums.size()) {
    for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += x[i + lane] * x[i + lane];
  }
  double sum = std::accumulate(sums.begin(), sums.end(), 0.0);
  for (; i < x.size(); ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

}  // namespace

SwapMoeImportance::SwapMoeImportance(int experts, int top_k, std::vector<float> norms, SwapMoeScore score)
    : experts_(static_cast<size_t>(experts)),
      top_k_(static_cast<size_t>(std::min(top_k, experts))),
      score_(score),
      norms_(std::move(norms)),
      sums_(norms_.size()),
      order_(experts_) {
  MOED_CHECK(experts > 0 && top_k > 0 && norms_.size() % experts_ == 0);
}

void SwapMoeImportance::Add(int layer, std::span<const float> hidden, std::span<const float> logits) {
  MOED_CHECK(logits.size() == experts_);
  const std::span<const int32_t> chosen = TopExperts(logits, top_k_, order_);
  double factor = 1;
  const float highest = logits[chosen.front()];
  if (score_ == SwapMoeScore::kMagnitude) {
    float mass = 0;
    for (const float logit : logits) mass += std::exp(logit - highest);
    factor = std::sqrt(SquaredNorm(hidden)) / mass;
  }
  if (!std::isfinite(factor)) return;  // the token fails elsewhere
  for (const int32_t expert : chosen) {
    const double gate = score_ == SwapMoeScore::kMagnitude ? std::exp(logits[expert] - highest) * Norm(layer, expert) : 1;
    sums_[At(layer, expert)] += gate * factor;
  }
}

void SwapMoeImportance::Fade(int layer, double share) {
  for (double& sum : std::span(sums_).subspan(At(layer, 0), experts_)) sum *= share;
}

void SwapMoeImportance::ChooseSet(int layer, int slots, std::span<uint8_t> set) {
  ChooseFirst(slots, set, [&](int32_t e) { return std::tuple(-Of(layer, e), -static_cast<int>(set[e]), -Norm(layer, e), e); });
}

void SwapMoeImportance::ChooseByNorm(int layer, int slots, std::span<uint8_t> set) {
  ChooseFirst(slots, set, [&](int32_t e) { return std::pair(-Norm(layer, e), e); });
}

template <class Rank>
void SwapMoeImportance::ChooseFirst(int slots, std::span<uint8_t> set, const Rank& rank) {
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::sort(order_, [&](int32_t a, int32_t b) { return rank(a) < rank(b); });
  std::ranges::fill(set, 0);
  for (int i = 0; i < slots; ++i) set[order_[i]] = 1;
}

}  // namespace moed
