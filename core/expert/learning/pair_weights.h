// A weight for every pair of experts: what the use of one in its layer says of the other, some layers on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/expert/learning/learned_state.h"
#include "core/expert/part_context.h"

namespace moed {

// Bounds what it costs to hear a token: so many experts tell, whatever the distances. Each distance has at least so many of a
// token's leading choices, so that not all goes to distances.
struct PairTellers {
  size_t most_told;
  size_t least_leading;

  // Whatever the room.
  size_t MostDistances(size_t layers, size_t experts) const {
    return std::min(layers, std::max<size_t>(1, most_told / least_leading / experts));
  }
  // Choices of a token that tell, its first ones, at so many distances.
  size_t Leading(const ExpertModelShape& shape, size_t distances) const;
};

// A table for each of several distances: layers from the one that was used on to the one that is told of, through the end of a
// token into the next. Distance 0 is the same layer. The distances spread over a token, and fewer are always the first of more:
// 0, 1/2, 1/4, 3/4 of it, and so on. Who hears the layers just passed names the distances: 1, 2, 3.
//
// Fixed point of 16 bits, in steps of 1/4096 up to 8: half of what a float takes, so that layers of 512 experts have pairs in a
// few gigabytes. Not synchronised.
class PairWeights final : private LearnedRows {
 public:
  // As many distances as are asked for, no more than there are layers. None: all weights are 0.
  PairWeights(const ExpertModelShape& shape, size_t distances);
  // The distances given, in layers: all different, fewer than there are layers.
  PairWeights(const ExpertModelShape& shape, std::vector<size_t> distances);
  static size_t Bytes(const ExpertModelShape& shape);  // of one distance
  // Distances whose tables fit: they may take half of the shape's table_bytes.
  static size_t Fitting(const ExpertModelShape& shape);
  // The table_bytes that so many take.
  static size_t TableBytesOf(const ExpertModelShape& shape, size_t distances);

  size_t distances() const { return distances_.size(); }
  // The layer that the table of place `distance` hears for `position`.
  int Source(size_t distance, int position) const;
  // Begins to bring the row of `from` into the processor's caches.
  void Fetch(size_t distance, int position, size_t from) const;
  // Adds the row of `from`, weighed, to the log odds of the layer's experts.
  void Add(size_t distance, int position, size_t from, float weight, std::span<float> log_odds) const;
  // Moves the row by `step` times the experts' errors.
  void Learn(size_t distance, int position, size_t from, float step, std::span<const float> errors);

  void VisitLearned(LearnedState& state) { state.Rows(*this); }
  size_t memory_bytes() const { return weights_.size() * sizeof(int16_t); }

 private:
  size_t At(size_t distance, int position, size_t from) const {
    return ((distance * layers_ + static_cast<size_t>(position)) * experts_ + from) * experts_;
  }

  // Of a file: the distance in layers and the layer's position, then its weights. Distances that are not kept here are left.
  struct Place {
    uint32_t distance;
    uint32_t position;
  };
  size_t rows() const override { return distances_.size() * layers_; }
  size_t row_bytes() const override { return sizeof(Place) + experts_ * experts_ * sizeof(int16_t); }
  bool Write(size_t row, std::span<std::byte> bytes) const override;
  bool Sane(std::span<const std::byte> bytes) const override;
  void Take(std::span<const std::byte> bytes) override;

  const size_t layers_;
  const size_t experts_;
  const std::vector<size_t> distances_;  // in layers
  std::vector<int16_t> weights_;         // (distances, layers, from, experts)
};

}  // namespace moed
