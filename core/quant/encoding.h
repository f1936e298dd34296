// How weights become the codes of a format: quantizers as rows of one table. A quantizer chooses scales, offsets and codes; the
// layout, the bytes it takes and the kernels that read it are the format's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/quant/format.h"

namespace moed {

class ErrorFeedback;

enum class QuantizerId : uint8_t {
  // To nearest, with scales (and offsets) that make a block's squared error small; the float formats' own rounding.
  kRtn,
  // Half-quadratic quantisation: offsets that make a sparse norm of a block's error small (quant/line_fit.h).
  kHqq,
  // Channel-wise linear: one scale for a whole row, from its largest magnitude, repeated in every block of the row.
  kChannel,
  // Error feedback: each column makes good what rounding did to those before it, for inputs like those of a text
  // (quant/error_feedback.h).
  kGptq,
};

struct Quantizer {
  QuantizerId id;
  std::string_view name;
  std::string_view summary;
};
// The table. Order is that of QuantizerId.
std::span<const Quantizer> Quantizers();

struct Encoding {
  FormatId format = FormatId::kF32;
  QuantizerId quantizer = QuantizerId::kRtn;
};

// "q2" (rtn) or "q2:hqq". INVALID_ARGUMENT naming the formats that are made (those that are only kept are not), the known
// quantizers, or the formats a quantizer makes.
absl::StatusOr<Encoding> ParseEncoding(std::string_view text);
std::string EncodingName(const Encoding& encoding);  // as ParseEncoding reads it; "q2" for rtn
bool Makes(QuantizerId quantizer, FormatId format);

// Encodes rows [first_panel * 8, ...) of a matrix: `weights` (rows, cols) row-major holds just these rows, `out` their
// PackedBytes. The quantizer makes the format. INVALID_ARGUMENT for a weight that the format cannot hold (NaN, infinity, beyond
// float16), naming row, column, value and format; rows are counted from `first_row` there. `feedback`, of `cols`, is read by
// kGptq alone; null: nothing is known of the inputs.
absl::Status EncodeRows(const Encoding& encoding, const float* weights, int rows, int cols, std::span<std::byte> out,
                        int first_row = 0, const ErrorFeedback* feedback = nullptr);
// To nearest.
absl::Status EncodeRows(FormatId format, const float* weights, int rows, int cols, std::span<std::byte> out, int first_row = 0);

}  // namespace moed
