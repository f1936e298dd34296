#include "core/quant/safetensors_types.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/quant/block_rows.h"
#include "core/quant/fp8.h"
#include "core/quant/ggml_blocks.h"

namespace moed {
namespace {

using quant::Load;
using quant::RowBlock;

constexpr BlockType kTypes[] = {
    quant::kBF16Numbers, quant::kF16Numbers, quant::kF32Numbers, {"F8_E4M3", 1, 1}, {"I32", 1, 4}, {"I64", 1, 8}, {"U8", 1, 1},
};

template <int kColumns>
constexpr size_t kGroupBytes = 3 + kColumns / 2;

template <int kColumns>
void UnpackGroup(const std::byte* group, RowBlock& out) {
  out.scale = Load<uint16_t>(group);
  out.offset = Load<uint8_t>(group + 2);
  for (int i = 0; i < kColumns / 2; ++i) {
    const auto pair = Load<uint8_t>(group + 3 + i);
    out.codes[2 * i] = pair & 15;
    out.codes[2 * i + 1] = pair >> 4;
  }
}

constexpr size_t kFactorBytes = 2 * sizeof(float);

void UnpackNvfp4WithFactor(const std::byte* block, RowBlock& out) {
  quant::UnpackNvfp4(block + kFactorBytes, out);
  out.factor = Load<float>(block);
  out.rest = Load<float>(block + sizeof(float));
}

constexpr int kScaledBytes = sizeof(float) + quant::kFp8BlockColumns;

void DecodeScaledE4m3(const std::byte* row, int cols, float* out) {
  for (int first = 0; first < cols; first += quant::kFp8BlockColumns, row += kScaledBytes) {
    const auto scale = Load<float>(row);
    for (int i = 0; i < quant::kFp8BlockColumns; ++i) {
      const auto code = Load<uint8_t>(row + sizeof(float) + i);
      const bool nan = (code & 0x7f) == 0x7f;
      out[first + i] = nan ? std::numeric_limits<float>::quiet_NaN() : quant::E4m3ToFloat(code) * scale;
    }
  }
}

void KeepScaledE4m3(const std::byte* rows, int count, int cols, std::byte* out) {
  const size_t panel_bytes = PackedBytes(FormatId::kFp8, kPanelRows, cols);
  std::memset(out, 0, panel_bytes * Panels(count));
  for (int row = 0; row < count; ++row) {
    std::byte* const panel = out + panel_bytes * (row / kPanelRows);
    for (int first = 0; first < cols; first += quant::kFp8BlockColumns, rows += kScaledBytes) {
      std::memcpy(panel + quant::Fp8Header(first) + sizeof(float) * (row % kPanelRows), rows, sizeof(float));
      std::byte* const codes = panel + quant::Fp8Codes(first) + row % kPanelRows;
      for (int i = 0; i < quant::kFp8BlockColumns; ++i) codes[kPanelRows * i] = rows[sizeof(float) + i];
    }
  }
}

}  // namespace

std::span<const BlockType> SafetensorsTypes() { return kTypes; }

const BlockType* FindSafetensorsType(std::string_view name) {
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [name](const BlockType& row) { return row.name == name; });
  return type == std::end(kTypes) ? nullptr : type;
}

const BlockType kGroupsOf32 = quant::BlocksOf<FormatId::kQ4Z, kGroupBytes<32>, UnpackGroup<32>>("4 bits in groups of 32");
const BlockType kGroupsOf128 = quant::BlocksOf<FormatId::kQ4Z128, kGroupBytes<128>, UnpackGroup<128>>("4 bits in groups of 128");
const BlockType kScaledE4m3 = {"F8_E4M3 with scales", quant::kFp8BlockColumns, kScaledBytes,
                               FormatId::kFp8,        DecodeScaledE4m3,        KeepScaledE4m3};
const BlockType kMxfp4Blocks = quant::BlocksOf<FormatId::kMxfp4, 17, quant::UnpackMxfp4>("MXFP4");
const BlockType kNvfp4Blocks = quant::BlocksOf<FormatId::kNvfp4, kFactorBytes + 36, UnpackNvfp4WithFactor>("NVFP4");

}  // namespace moed
