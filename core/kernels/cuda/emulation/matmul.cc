#include "core/kernels/cuda/emulation/matmul.h"

#include <vector>

#include "core/quant/half.h"

namespace moed::emulation {
namespace {

std::vector<float> Widened(const uint16_t* halves, size_t count) {
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = Float16ToFloat(halves[i]);
  return numbers;
}

float Dot(const float* a, const float* b, int inner) {
  float parts[3] = {};
  for (int i = inner; i-- > 0;) parts[i % 3] += a[i] * b[i];
  return parts[2] + (parts[1] + parts[0]);
}

}  // namespace

void MultiplyHalves(const HalfProduct& product) {
  const auto inner = static_cast<size_t>(product.inner);
  const std::vector<float> a = Widened(product.a, product.rows * inner), b = Widened(product.b, product.columns * inner);
  for (int column = 0; column < product.columns; ++column) {
    for (int row = 0; row < product.rows; ++row) {
      product.c[static_cast<size_t>(column) * product.rows + row] = Dot(&a[row * inner], &b[column * inner], product.inner);
    }
  }
}

}  // namespace moed::emulation
