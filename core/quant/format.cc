#include "core/quant/format.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/quant/codecs.h"

namespace moed {
namespace {

template <void (*kDecodeRow)(const std::byte*, int, float*)>
void DecodeBlock(const std::byte* in, float* weights) {
  for (int row = 0; row < kPanelRows; ++row) kDecodeRow(in, row, weights + kBlockColumns * row);
}

template <void (*kEncodeBlock)(const float*, std::byte*), void (*kDecodeRow)(const std::byte*, int, float*)>
constexpr Format Row(FormatId id, std::string_view name, size_t panel_block_bytes, bool integer_activations, float largest) {
  return {id, name, panel_block_bytes, integer_activations, largest, kEncodeBlock, DecodeBlock<kDecodeRow>, kDecodeRow};
}

// A block's scale must fit float16, and where the format divides the range by its number of levels, so much larger may weights
// be.
constexpr Format kFormats[] = {
    Row<quant::EncodeF32, quant::DecodeRowF32>(FormatId::kF32, "f32", 1024, false, 0x1.fffffep127f),
    Row<quant::EncodeF16, quant::DecodeRowF16>(FormatId::kF16, "f16", 512, false, quant::kLargestFloat16),
    Row<quant::EncodeBF16, quant::DecodeRowBF16>(FormatId::kBF16, "bf16", 512, false, 0x1.fep127f),
    Row<quant::EncodeQ8, quant::DecodeRowQ8>(FormatId::kQ8, "q8", 272, true, 127 * quant::kLargestFloat16),
    Row<quant::EncodeQ4, quant::DecodeRowQ4>(FormatId::kQ4, "q4", 144, true, 8 * quant::kLargestFloat16),
    Row<quant::EncodeQ2, quant::DecodeRowQ2>(FormatId::kQ2, "q2", 96, true, quant::kLargestFloat16),
    Row<quant::EncodeQ4A, quant::DecodeRowQ4A>(FormatId::kQ4A, "q4a", 160, true, quant::kLargestFloat16),
    Row<quant::EncodeQ3, quant::DecodeRowQ3>(FormatId::kQ3, "q3", 128, true, quant::kLargestFloat16),
};

}  // namespace

std::span<const Format> Formats() { return kFormats; }

const Format& FormatOf(FormatId id) {
  const auto index = static_cast<size_t>(id);
  MOED_CHECK(index < std::size(kFormats));
  return kFormats[index];
}

absl::StatusOr<FormatId> ParseFormat(std::string_view name) {
  for (const Format& format : kFormats) {
    if (format.name == name) return format.id;
  }
  return InvalidArgument("unknown weight format '", name,
                         "'; known: ", JoinNames(kFormats, [](const Format& format) { return format.name; }));
}

size_t PackedBytes(FormatId format, int rows, int cols) {
  return FormatOf(format).panel_block_bytes * static_cast<size_t>(Panels(rows)) * static_cast<size_t>(Blocks(cols));
}

void DecodeRow(FormatId id, const std::byte* packed, int cols, int row, float* out) {
  const Format& format = FormatOf(id);
  const int blocks = Blocks(cols);
  const std::byte* at = packed + format.panel_block_bytes * static_cast<size_t>(row / kPanelRows) * static_cast<size_t>(blocks);
  for (int block = 0; block < blocks; ++block, at += format.panel_block_bytes) {
    float weights[kBlockColumns];
    format.decode_row(at, row % kPanelRows, weights);
    const int first_column = block * kBlockColumns;
    std::memcpy(out + first_column, weights, std::min(kBlockColumns, cols - first_column) * sizeof(float));
  }
}

}  // namespace moed
