// What MatMulJob::halves is carved into.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/buffer.h"
#include "core/quant/format.h"

namespace moed {

// Of a product of (tokens, inner) with some rows of a matrix of (any, inner).
struct HalfStorage {
  std::span<uint16_t> input;         // (tokens, inner)
  std::span<float> input_inverses;   // (tokens)
  std::span<uint16_t> weights;       // (rows, inner)
  std::span<float> weight_inverses;  // (rows)
  std::span<float> products;         // (tokens, rows)

  int rows() const { return static_cast<int>(weight_inverses.size()); }

  static size_t Bytes(size_t tokens, size_t rows, size_t inner) {
    return InputBytes(tokens, inner) + Arena::Rounded(rows * inner * sizeof(uint16_t)) + Arena::Rounded(rows * sizeof(float)) +
           Arena::Rounded(tokens * rows * sizeof(float));
  }
  // For as many rows as there is room for, whole panels, at most `most` rounded up to them.
  static HalfStorage In(std::span<std::byte> storage, size_t tokens, size_t most, size_t inner) {
    const auto panels = [](size_t rows) { return rows / kPanelRows * kPanelRows; };
    const size_t row_bytes = inner * sizeof(uint16_t) + (1 + tokens) * sizeof(float);
    size_t rows = panels(std::min(most + kPanelRows - 1, (storage.size() - InputBytes(tokens, inner)) / row_bytes));
    while (rows > kPanelRows && Bytes(tokens, rows, inner) > storage.size()) rows -= kPanelRows;  // what rounding takes
    Arena arena(storage);
    HalfStorage halves;
    halves.input = arena.Take<uint16_t>(tokens * inner);
    halves.input_inverses = arena.Take<float>(tokens);
    halves.weights = arena.Take<uint16_t>(rows * inner);
    halves.weight_inverses = arena.Take<float>(rows);
    halves.products = arena.Take<float>(tokens * rows);
    return halves;
  }

 private:
  static size_t InputBytes(size_t tokens, size_t inner) {
    return Arena::Rounded(tokens * inner * sizeof(uint16_t)) + Arena::Rounded(tokens * sizeof(float));
  }
};

}  // namespace moed
