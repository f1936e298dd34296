#include "core/expert/learning/pair_weights.h"

namespace moed {
namespace {

constexpr float kOne = 4096;
constexpr float kMost = 32767;

}  // namespace

PairWeights::PairWeights(const ExpertModelShape& shape, bool kept)
    : experts_(static_cast<size_t>(shape.experts_per_layer)), weights_(kept ? Bytes(shape) / sizeof(int16_t) : 0) {}

size_t PairWeights::Bytes(const ExpertModelShape& shape) {
  return shape.experts() * static_cast<size_t>(shape.experts_per_layer) * sizeof(int16_t);
}

void PairWeights::Add(int position, size_t from, float weight, std::span<float> log_odds) const {
  if (weights_.empty()) return;
  const int16_t* row = &weights_[(static_cast<size_t>(position) * experts_ + from) * experts_];
  const float unit = weight / kOne;
  for (size_t e = 0; e < experts_; ++e) log_odds[e] += unit * static_cast<float>(row[e]);
}

void PairWeights::Learn(int position, size_t from, float step, std::span<const float> errors) {
  if (weights_.empty()) return;
  int16_t* row = &weights_[(static_cast<size_t>(position) * experts_ + from) * experts_];
  for (size_t e = 0; e < experts_; ++e) {
    float weight = static_cast<float>(row[e]) + step * kOne * errors[e];
    weight = weight < -kMost ? -kMost : weight > kMost ? kMost : weight;
    row[e] = static_cast<int16_t>(static_cast<int32_t>(weight + (weight < 0 ? -0.5f : 0.5f)));
  }
}

}  // namespace moed
