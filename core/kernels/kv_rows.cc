#include "core/kernels/kv_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

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

// copy(bytes from the row's begin, bytes from the keys' begin, size) for every element of the key at `slot`.
template <class Copy>
void ForElements(KvFormat format, int head_dim, int page_tokens, int slot, const Copy& copy) {
  const auto elements = [&](auto size, int count, int64_t row, int64_t keys) {
    for (int i = 0; i < count; ++i) copy(row + size * i, keys + size * (int64_t{i} * page_tokens + slot), size);
  };
  switch (format) {
    case KvFormat::kF32:
      return elements(std::integral_constant<int, sizeof(float)>(), head_dim, 0, 0);
    case KvFormat::kF16:
      return elements(std::integral_constant<int, sizeof(uint16_t)>(), head_dim, 0, 0);
    case KvFormat::kQ8:
      elements(std::integral_constant<int, 1>(), head_dim, 0, 0);
      return elements(std::integral_constant<int, sizeof(uint16_t)>(), ScaleCount(head_dim), head_dim,
                      int64_t{head_dim} * page_tokens);
  }
}

}  // namespace

int64_t KvRowBytes(KvFormat format, int head_dim) {
  switch (format) {
    case KvFormat::kF32:
      return head_dim * int64_t{sizeof(float)};
    case KvFormat::kF16:
      return head_dim * int64_t{sizeof(uint16_t)};
    case KvFormat::kQ8:
      return head_dim + int64_t{sizeof(uint16_t)} * ScaleCount(head_dim);
  }
  return 0;
}

int64_t LatentRowBytes(KvFormat format, int rank, int rotary_dims) {
  return KvRowBytes(format, rank) + KvRowBytes(format, rotary_dims);
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

void PlaceKvKey(KvFormat format, const void* row, int head_dim, int page_tokens, int slot, void* keys) {
  ForElements(format, head_dim, page_tokens, slot, [&](int64_t in_row, int64_t in_keys, auto size) {
    std::memcpy(static_cast<char*>(keys) + in_keys, static_cast<const char*>(row) + in_row, size);
  });
}

void TakeKvKey(KvFormat format, const void* keys, int head_dim, int page_tokens, int slot, void* row) {
  ForElements(format, head_dim, page_tokens, slot, [&](int64_t in_row, int64_t in_keys, auto size) {
    std::memcpy(static_cast<char*>(row) + in_row, static_cast<const char*>(keys) + in_keys, size);
  });
}

}  // namespace moed
