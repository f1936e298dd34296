#include "core/quant/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/quant/block_formats.h"

namespace moed {
namespace {

constexpr int kBlockWeights = kPanelRows * kBlockColumns;

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
};

// Copies a block out of a row-major matrix, zeros where the matrix ends. False when a weight exceeds `largest` or is not a
// number.
bool GatherBlock(const float* matrix, int rows, int cols, int panel, int block, float largest, float* out) {
  const int first_row = panel * kPanelRows;
  const int first_column = block * kBlockColumns;
  const int width = std::min(kBlockColumns, cols - first_column);
  const int height = std::min(kPanelRows, rows - first_row);
  std::memset(out, 0, kBlockWeights * sizeof(float));
  for (int row = 0; row < height; ++row) {
    std::memcpy(out + kBlockColumns * row, matrix + static_cast<int64_t>(first_row + row) * cols + first_column,
                width * sizeof(float));
  }
  int misfits = 0;
  for (int i = 0; i < kBlockWeights; ++i) misfits += !(std::fabs(out[i]) <= largest);
  return misfits == 0;
}

// All the digits that tell it from its neighbours.
std::string ExactText(float value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

absl::Status MisfitError(const Format& format, const float* matrix, int rows, int cols, int first_row) {
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < cols; ++column) {
      const float weight = matrix[static_cast<int64_t>(row) * cols + column];
      if (std::fabs(weight) <= format.largest) continue;
      return InvalidArgument("row ", first_row + row, ", column ", column, ": weight ", ExactText(weight), " does not fit ",
                             format.name, " (finite, magnitude up to ", ExactText(format.largest), ")");
    }
  }
  return Internal("no misfit in a matrix that was said to have one");
}

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

absl::Status EncodeRows(FormatId id, const float* weights, int rows, int cols, std::span<std::byte> out, int first_row) {
  MOED_CHECK(out.size() == PackedBytes(id, rows, cols));
  const Format& format = FormatOf(id);
  std::byte* at = out.data();
  for (int panel = 0; panel < Panels(rows); ++panel) {
    for (int block = 0; block < Blocks(cols); ++block) {
      float gathered[kBlockWeights];
      if (!GatherBlock(weights, rows, cols, panel, block, format.largest, gathered)) {
        return MisfitError(format, weights, rows, cols, first_row);
      }
      format.encode_block(gathered, at);
      at += format.panel_block_bytes;
    }
  }
  return absl::OkStatus();
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
