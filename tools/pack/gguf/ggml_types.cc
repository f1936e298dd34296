#include "tools/pack/gguf/ggml_types.h"

#include <algorithm>
#include <cstring>

#include "core/quant/half.h"

namespace moed {
namespace {

constexpr GgmlType kTypes[] = {
    {0, "F32", 1, 4, FormatId::kF32},
    {1, "F16", 1, 2, FormatId::kF16},
    {30, "BF16", 1, 2, FormatId::kBF16},
};

}  // namespace

std::span<const GgmlType> GgmlTypes() { return kTypes; }

const GgmlType* FindGgmlType(uint32_t id) {
  const auto type = std::ranges::find(kTypes, id, &GgmlType::id);
  return type == std::end(kTypes) ? nullptr : &*type;
}

size_t GgmlRowBytes(const GgmlType& type, int cols) { return static_cast<size_t>(cols / type.block_columns) * type.block_bytes; }

void DecodeGgmlRow(const GgmlType& type, const std::byte* row, int cols, float* out) {
  if (type.kept == FormatId::kF32) {
    std::memcpy(out, row, sizeof(float) * static_cast<size_t>(cols));
    return;
  }
  for (int i = 0; i < cols; ++i) {
    uint16_t half;
    std::memcpy(&half, row + 2 * i, sizeof half);
    out[i] = type.kept == FormatId::kF16 ? Float16ToFloat(half) : BFloat16ToFloat(half);
  }
}

}  // namespace moed
