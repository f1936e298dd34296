// Weight formats as rows of one table: layout, scalar encode and decode. The byte layouts are part of the store format
// (docs/store-format.md) and the same for every instruction set.
//
// A matrix (rows, cols) is cut into panels of 8 rows and blocks of 32 columns, both padded with zeros; panel after panel, and
// inside a panel block after block. One panel block holds 8 x 32 weights, interleaved so that the 32-bit lane r of every vector
// belongs to row r and no kernel needs a horizontal sum:
//   f32        32 columns, each 8 float32 (row 0..7)                                                      1024 bytes
//   f16, bf16  32 columns, each 8 halfwords (row 0..7)                                                     512 bytes
//   q8         8 float16 scales d[r]; 8 vectors v of 32 bytes: byte 4r+j = int8 q[r][4v+j];                      272 bytes
//              weight = d * q; quantizers write q in -127..127
//   q4         8 float16 scales d[r]; 4 vectors v of 32 bytes: byte 4r+j = q[r][4v+j] | q[r][16+4v+j] << 4;   144 bytes
//              weight = d * (q - 8), q in 0..15
//   q2         8 float16 scales d[r], 8 float16 offsets m[r]; 2 vectors v of 32 bytes:                        96 bytes
//              bits 2i..2i+1 of byte 4r+j = q[r][8i+4v+j], i in 0..3; weight = d * q + m, q in 0..3
//   q4a        8 float16 scales d[r], 8 float16 offsets m[r]; 4 vectors as q4's; weight = d * q + m, q in 0..15   160 bytes
//   q3         8 float16 scales d[r], 8 float16 offsets m[r]; 2 vectors as q2's with the low two bits of q;       128 bytes
//              a vector of 32 bytes: bit s of byte 4r+j = third bit of q[r][4s+j]; weight = d * q + m, q in 0..7
// The formats that keep the blocks of GGUF files (ggml_types.h) are made of the same vectors: 4 bits of each code as q4's, 2 as
// q2's, 1 as q3's third, planes one behind the other, the low bits first. Those with blocks of 256 columns have for each 32 of
// them what a smaller block has, behind one header of scales. Their numbers of columns are multiples of 256. Those that keep
// quantised safetensors (safetensors_types.h) are q4z, q4z_128, fp8 and nvfp4, whose blocks of 128 columns (q4z_128, fp8) or 64
// (nvfp4) are made in the same way.
// docs/store-format.md has them byte for byte.
// All little-endian. Everything here is pure and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/quant/format_id.h"

namespace moed {

namespace quant {
struct Codec;
}

struct Format {
  FormatId id;
  std::string_view name;     // "q8"
  int block_columns;         // 32, 64, 128 or 256
  size_t panel_block_bytes;  // bytes of 8 rows x block_columns
  // Of these, float16 scales and offsets at its start (mxfp4: exponents; nvfp4: two float32, numbers of e4m3); what is behind
  // them are integers, multiplied with int8-quantised activations. 0: the weights themselves (fp8: behind float32 scales),
  // multiplied with float activations.
  size_t scale_bytes;
  float largest;              // greatest magnitude of a weight that quantizers may put into it
  const quant::Codec& codec;  // scalar encode and decode (codec.h); EncodeRows and DecodeRow are built on it

  bool integer_activations() const { return scale_bytes > 0; }
};

// The table (format_table.cc). Order is that of FormatId.
std::span<const Format> Formats();
const Format& FormatOf(FormatId id);
// INVALID_ARGUMENT naming the known formats.
absl::StatusOr<FormatId> ParseFormat(std::string_view name);

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int Panels(int rows) { return static_cast<int>(CeilDiv(rows, kPanelRows)); }
// Of activations: 32 columns each, whatever the format.
constexpr int Blocks(int cols) { return static_cast<int>(CeilDiv(cols, kBlockColumns)); }
// Formats with larger blocks take whole ones only.
bool FitsColumns(FormatId format, int cols);
size_t PackedBytes(FormatId format, int rows, int cols);

// Decodes row `row` of a packed matrix into `out` (cols).
void DecodeRow(FormatId format, const std::byte* packed, int cols, int row, float* out);

}  // namespace moed
