#include "core/quant/format.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/quant/codec.h"
#include "core/quant/row_block.h"

namespace moed {

const Format& FormatOf(FormatId id) {
  const auto index = static_cast<size_t>(id);
  MOED_CHECK(index < Formats().size());
  return Formats()[index];
}

absl::StatusOr<FormatId> ParseFormat(std::string_view name) {
  for (const Format& format : Formats()) {
    if (format.name == name) return format.id;
  }
  return InvalidArgument("unknown weight format '", name,
                         "'; known: ", JoinNames(Formats(), [](const Format& format) { return format.name; }));
}

bool FitsColumns(FormatId format, int cols) {
  const int block = FormatOf(format).block_columns;
  return block == kBlockColumns || cols % block == 0;
}

size_t PackedBytes(FormatId format, int rows, int cols) {
  const Format& row = FormatOf(format);
  return row.panel_block_bytes * static_cast<size_t>(Panels(rows)) * static_cast<size_t>(CeilDiv(cols, row.block_columns));
}

void DecodeRow(FormatId id, const std::byte* packed, int cols, int row, float* out) {
  const Format& format = FormatOf(id);
  const int blocks = static_cast<int>(CeilDiv(cols, format.block_columns));
  const std::byte* at = packed + format.panel_block_bytes * static_cast<size_t>(row / kPanelRows) * static_cast<size_t>(blocks);
  for (int block = 0; block < blocks; ++block, at += format.panel_block_bytes) {
    float weights[quant::kMostBlockColumns];
    format.codec.decode_row(at, row % kPanelRows, weights);
    const int first_column = block * format.block_columns;
    std::memcpy(out + first_column, weights, std::min(format.block_columns, cols - first_column) * sizeof(float));
  }
}

}  // namespace moed
