#include "core/kernels/kv_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/quant/half.h"
#include "core/quant/rounding.h"

namespace moed {
namespace {

constexpr float kLargestHalf = 65504;
constexpr uint16_t kNanHalf = 0x7e00;
constexpr int kLargestCode = 127;

uint16_t Half(float x) { return FloatToFloat16(std::clamp(x, -kLargestHalf, kLargestHalf)); }

// Codes of up to 32 numbers; returns their scale.
uint16_t StoreCodes(const float* numbers, int count, signed char* codes) {
  float largest = 0;
  bool finite = true;
  for (int i = 0; i < count; ++i) {
    largest = std::max(largest, std::fabs(numbers[i]));
    finite &= std::isfinite(numbers[i]);
  }
  const uint16_t half = finite ? Half(largest / kLargestCode) : kNanHalf;
  const float scale = Float16ToFloat(half);
  if (!(scale > 0)) {
    std::fill_n(codes, count, 0);
    return half;
  }
  for (int i = 0; i < count; ++i) {
    const float code = std::clamp<float>(numbers[i] / scale, -kLargestCode, kLargestCode);
    codes[i] = static_cast<signed char>(RoundToEven(code));
  }
  return half;
}

int ScaleCount(int head_dim) { return (head_dim + kKvScaleColumns - 1) / kKvScaleColumns; }

}  // namespace

int64_t KvRowElements(KvFormat format, int head_dim) {
  return format == KvFormat::kQ8 ? head_dim + int64_t{sizeof(uint16_t)} * ScaleCount(head_dim) : head_dim;
}

int64_t KvRowBytes(KvFormat format, int head_dim) {
  constexpr int64_t kElementBytes[kKvFormatCount] = {sizeof(float), sizeof(uint16_t), 1};
  return kElementBytes[static_cast<int>(format)] * KvRowElements(format, head_dim);
}

void StoreKvRow(KvFormat format, const float* numbers, int head_dim, void* row) {
  switch (format) {
    case KvFormat::kF32:
      std::copy_n(numbers, head_dim, static_cast<float*>(row));
      return;
    case KvFormat::kF16:
      std::transform(numbers, numbers + head_dim, static_cast<uint16_t*>(row), Half);
      return;
    case KvFormat::kQ8:
      auto* const codes = static_cast<signed char*>(row);
      for (int first = 0; first < head_dim; first += kKvScaleColumns) {
        const uint16_t scale = StoreCodes(numbers + first, std::min(kKvScaleColumns, head_dim - first), codes + first);
        std::memcpy(codes + head_dim + first / kKvScaleColumns * sizeof(scale), &scale, sizeof(scale));
      }
      return;
  }
}

void WidenKvRow(KvFormat format, const void* row, int head_dim, float* numbers) {
  switch (format) {
    case KvFormat::kF32:
      std::copy_n(static_cast<const float*>(row), head_dim, numbers);
      return;
    case KvFormat::kF16:
      std::transform(static_cast<const uint16_t*>(row), static_cast<const uint16_t*>(row) + head_dim, numbers, Float16ToFloat);
      return;
    case KvFormat::kQ8:
      const auto* const codes = static_cast<const signed char*>(row);
      for (int i = 0; i < head_dim; ++i) {
        uint16_t scale;
        std::memcpy(&scale, codes + head_dim + i / kKvScaleColumns * sizeof(scale), sizeof(scale));
        numbers[i] = static_cast<float>(codes[i]) * Float16ToFloat(scale);
      }
      return;
  }
}

}  // namespace moed
