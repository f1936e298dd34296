#include "core/expert/learning/pair_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace moed {
namespace {

constexpr float kOne = 4096;
constexpr float kMost = 32767;
constexpr size_t kCacheLine = 64;   // bytes
constexpr size_t kTablesShare = 2;  // one of so many parts of the shape's table_bytes

// The first of 0, 1/2, 1/4, 3/4, 1/8, 5/8, ... of so many layers, all different.
std::vector<size_t> Distances(size_t layers, size_t count) {
  std::vector<size_t> distances;
  for (uint64_t i = 0; distances.size() < std::min(count, layers); ++i) {
    uint64_t numerator = 0, denominator = 1;
    for (uint64_t bits = i; bits > 0; bits >>= 1, denominator *= 2) numerator = 2 * numerator + (bits & 1);
    const auto distance = static_cast<size_t>(numerator * layers / denominator);
    if (std::ranges::find(distances, distance) == distances.end()) distances.push_back(distance);
  }
  return distances;
}

}  // namespace

size_t PairTellers::Leading(const ExpertModelShape& shape, size_t distances) const {
  const size_t told = std::max<size_t>(1, distances) * static_cast<size_t>(shape.experts_per_layer);
  return std::clamp<size_t>(most_told / told, 1,
                            static_cast<size_t>(std::max(1, std::min(shape.top_k, shape.experts_per_layer))));
}

PairWeights::PairWeights(const ExpertModelShape& shape, size_t distances)
    : PairWeights(shape, Distances(shape.moe_layers.size(), distances)) {}

PairWeights::PairWeights(const ExpertModelShape& shape, std::vector<size_t> distances)
    : layers_(shape.moe_layers.size()),
      experts_(static_cast<size_t>(shape.experts_per_layer)),
      distances_(std::move(distances)),
      weights_(distances_.size() * layers_ * experts_ * experts_) {}

size_t PairWeights::Bytes(const ExpertModelShape& shape) {
  return shape.experts() * static_cast<size_t>(shape.experts_per_layer) * sizeof(int16_t);
}

size_t PairWeights::Fitting(const ExpertModelShape& shape) {
  return shape.table_bytes / kTablesShare / std::max<size_t>(1, Bytes(shape));
}

size_t PairWeights::TableBytesOf(const ExpertModelShape& shape, size_t distances) {
  return kTablesShare * distances * Bytes(shape);
}

int PairWeights::Source(size_t distance, int position) const {
  return static_cast<int>((static_cast<size_t>(position) + layers_ - distances_[distance]) % layers_);
}

void PairWeights::Fetch(size_t distance, int position, size_t from) const {
  const int16_t* row = &weights_[At(distance, position, from)];
  for (size_t e = 0; e < experts_; e += kCacheLine / sizeof(int16_t)) __builtin_prefetch(row + e);
}

void PairWeights::Add(size_t distance, int position, size_t from, float weight, std::span<float> log_odds) const {
  if (weights_.empty()) return;
  const int16_t* row = &weights_[At(distance, position, from)];
  const float unit = weight / kOne;
  for (size_t e = 0; e < experts_; ++e) log_odds[e] += unit * static_cast<float>(row[e]);
}

void PairWeights::Learn(size_t distance, int position, size_t from, float step, std::span<const float> errors) {
  if (weights_.empty()) return;
  int16_t* row = &weights_[At(distance, position, from)];
  for (size_t e = 0; e < experts_; ++e) {
    float weight = static_cast<float>(row[e]) + step * kOne * errors[e];
    weight = weight < -kMost ? -kMost : weight > kMost ? kMost : weight;
    row[e] = static_cast<int16_t>(static_cast<int32_t>(weight + (weight < 0 ? -0.5f : 0.5f)));
  }
}

bool PairWeights::Write(size_t row, std::span<std::byte> bytes) const {
  const int16_t* weights = &weights_[row * experts_ * experts_];
  if (std::all_of(weights, weights + experts_ * experts_, [](int16_t weight) { return weight == 0; })) return false;
  const Place place{static_cast<uint32_t>(distances_[row / layers_]), static_cast<uint32_t>(row % layers_)};
  std::memcpy(bytes.data(), &place, sizeof(place));
  std::memcpy(&bytes[sizeof(place)], weights, bytes.size() - sizeof(place));
  return true;
}

bool PairWeights::Sane(std::span<const std::byte> bytes) const {
  Place place;
  std::memcpy(&place, bytes.data(), sizeof(place));
  return place.distance < layers_ && place.position < layers_;
}

void PairWeights::Take(std::span<const std::byte> bytes) {
  Place place;
  std::memcpy(&place, bytes.data(), sizeof(place));
  const auto found = std::ranges::find(distances_, size_t{place.distance});
  if (found == distances_.end()) return;
  const auto distance = static_cast<size_t>(found - distances_.begin());
  std::memcpy(&weights_[At(distance, static_cast<int>(place.position), 0)], &bytes[sizeof(place)], bytes.size() - sizeof(place));
}

}  // namespace moed
