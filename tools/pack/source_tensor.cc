#include "tools/pack/source_tensor.h"

#include <cstring>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/quant/half.h"

namespace moed {
namespace {

template <float (*kConvert)(uint16_t)>
void HalvesToFloat(const std::byte* row, int cols, float* out) {
  for (int i = 0; i < cols; ++i) {
    uint16_t half;
    std::memcpy(&half, row + 2 * i, sizeof half);
    out[i] = kConvert(half);
  }
}

void CopyFloats(const std::byte* row, int cols, float* out) { std::memcpy(out, row, sizeof(float) * static_cast<size_t>(cols)); }

constexpr SourceType kSourceTypes[] = {
    {"BF16", 1, 2, FormatId::kBF16, HalvesToFloat<BFloat16ToFloat>},
    {"F16", 1, 2, FormatId::kF16, HalvesToFloat<Float16ToFloat>},
    {"F32", 1, 4, FormatId::kF32, CopyFloats},
};

}  // namespace

std::span<const SourceType> SourceTypes() { return kSourceTypes; }
const SourceType kSourceBytes = {"U8", 1, 1, FormatId::kF32, nullptr};
const SourceType kSourceMxfp4 = {"MXFP4", 1, 0, FormatId::kMxfp4, nullptr};

const SourceType& SourceTypeOf(const GgmlType& type) {
  static const auto& types = *[] {
    auto* made = new std::vector<SourceType>;
    for (const GgmlType& ggml : GgmlTypes()) {
      const FormatId format = ggml.block_columns == 1 ? ggml.kept : FormatId::kF32;
      made->push_back({ggml.name, ggml.block_columns, ggml.block_bytes, format, ggml.decode_row, &ggml});
    }
    return made;
  }();
  for (const SourceType& known : types) {
    if (known.ggml == &type) return known;
  }
  MOED_CHECK(false);  // `type` is no row of GgmlTypes()
  __builtin_unreachable();
}

std::string ShapeName(std::span<const uint64_t> shape) {
  return StrCat("(", JoinNames(shape, [](uint64_t extent) { return extent; }), ")");
}

absl::Status ReadRows(const SourceTensor& tensor, uint64_t first, uint64_t count, std::vector<std::byte>& out) {
  const uint64_t row_bytes = tensor.row_bytes();
  out.resize(count * row_bytes);
  if (tensor.row_order.empty()) return tensor.file->ReadAt(tensor.offset + first * row_bytes, out);
  for (uint64_t i = 0; i < count; ++i) {
    const std::span<std::byte> row = std::span(out).subspan(i * row_bytes, row_bytes);
    MOED_RETURN_IF_ERROR(tensor.file->ReadAt(tensor.offset + tensor.row_order[first + i] * row_bytes, row));
  }
  return absl::OkStatus();
}

}  // namespace moed
