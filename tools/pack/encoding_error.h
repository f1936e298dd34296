// What encoding loses, measured on a sample.
#pragma once

#include <cmath>

namespace moed {

// Sums of squares.
struct EncodingError {
  double lost = 0;  // of what decoding does not give back
  double weights = 0;

  void Add(const EncodingError& other) {
    lost += other.lost;
    weights += other.weights;
  }
  double relative() const { return weights > 0 ? std::sqrt(lost / weights) : 0; }
};

}  // namespace moed
