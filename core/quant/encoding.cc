#include "core/quant/encoding.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/quant/codec.h"
#include "core/quant/error_feedback.h"

namespace moed {
namespace {

constexpr int kBlockWeights = kPanelRows * kBlockColumns;

constexpr Quantizer kQuantizers[] = {
    {QuantizerId::kRtn, "rtn", "round to nearest, least squared error of each block"},
    {QuantizerId::kHqq, "hqq", "half-quadratic: offsets by a sparse norm of each block's error"},
    {QuantizerId::kChannel, "channel", "one scale a row, from its largest magnitude"},
    {QuantizerId::kGptq, "gptq", "columns make good the errors of those before them, by the inputs of a text (--calibration)"},
};

// `row_largest`: of the whole rows, read by kChannel alone.
void EncodeBlock(const quant::Codec& codec, QuantizerId quantizer, const float* weights, const float* row_largest,
                 std::byte* out) {
  switch (quantizer) {
    case QuantizerId::kRtn:
      return codec.nearest(weights, out);
    case QuantizerId::kHqq:
      return codec.half_quadratic(weights, out);
    case QuantizerId::kChannel:
      return codec.channel(weights, row_largest, out);
    case QuantizerId::kGptq:
      break;  // by panels
  }
}

std::string FormatsOf(QuantizerId quantizer) {
  std::vector<std::string_view> names;
  for (const Format& format : Formats()) {
    if (Makes(quantizer, format.id)) names.push_back(format.name);
  }
  return JoinNames(names, [](std::string_view name) { return name; });
}

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

// The greatest magnitude of each row of a panel; zeros below the matrix's last row. Weights that are no number count nothing.
void RowLargest(const float* matrix, int rows, int cols, int panel, float (&largest)[kPanelRows]) {
  for (int i = 0; i < kPanelRows; ++i) {
    largest[i] = 0;
    const int row = panel * kPanelRows + i;
    if (row >= rows) continue;
    const float* at = matrix + static_cast<int64_t>(row) * cols;
    for (int column = 0; column < cols; ++column) largest[i] = std::max(largest[i], std::fabs(at[column]));
  }
}

absl::Status EncodeFedBack(const Format& format, const float* weights, int rows, const ErrorFeedback& feedback,
                           std::span<std::byte> out, int first_row) {
  const int cols = feedback.cols();
  for (int64_t i = 0; i < int64_t{rows} * cols; ++i) {
    if (!(std::fabs(weights[i]) <= format.largest)) return MisfitError(format, weights, rows, cols, first_row);
  }
  const size_t panel_floats = static_cast<size_t>(kPanelRows) * cols, panel_bytes = PackedBytes(format.id, kPanelRows, cols);
  std::vector<float> last;  // a panel that the matrix does not fill
  for (int panel = 0; panel < Panels(rows); ++panel) {
    const float* at = weights + panel * panel_floats;
    if (const int there = rows - panel * kPanelRows; there < kPanelRows) {
      last.assign(at, at + static_cast<size_t>(there) * cols);
      last.resize(panel_floats);
      at = last.data();
    }
    format.codec.fed_back(at, feedback, out.data() + panel * panel_bytes);
  }
  return absl::OkStatus();
}

// Rounding to nearest makes every format that is made at all.
absl::StatusOr<FormatId> ParseMadeFormat(std::string_view name) {
  std::vector<std::string_view> made;
  for (const Format& format : Formats()) {
    if (!Makes(QuantizerId::kRtn, format.id)) continue;
    if (format.name == name) return format.id;
    made.push_back(format.name);
  }
  const std::string known = JoinNames(made, [](std::string_view known_name) { return known_name; });
  if (!ParseFormat(name).ok()) return InvalidArgument("unknown weight format '", name, "'; known: ", known);
  return InvalidArgument("weight format '", name, "' is kept from checkpoints and cannot be made; what can be made: ", known);
}

}  // namespace

std::span<const Quantizer> Quantizers() { return kQuantizers; }

bool Makes(QuantizerId quantizer, FormatId format) {
  const quant::Codec& codec = FormatOf(format).codec;
  switch (quantizer) {
    case QuantizerId::kRtn:
      return codec.nearest != nullptr;
    case QuantizerId::kHqq:
      return codec.half_quadratic != nullptr;
    case QuantizerId::kChannel:
      return codec.channel != nullptr;
    case QuantizerId::kGptq:
      return codec.fed_back != nullptr;
  }
  return false;
}

absl::StatusOr<Encoding> ParseEncoding(std::string_view text) {
  const size_t colon = text.find(':');
  Encoding encoding;
  MOED_ASSIGN_OR_RETURN(encoding.format, ParseMadeFormat(text.substr(0, colon)));
  if (colon == std::string_view::npos) return encoding;
  const std::string_view name = text.substr(colon + 1);
  const auto row =
      std::find_if(std::begin(kQuantizers), std::end(kQuantizers), [&](const Quantizer& q) { return q.name == name; });
  if (row == std::end(kQuantizers)) {
    return InvalidArgument("unknown quantizer '", name, "' in '", text,
                           "'; known: ", JoinNames(kQuantizers, [](const Quantizer& q) { return q.name; }));
  }
  encoding.quantizer = row->id;
  if (!Makes(encoding.quantizer, encoding.format)) {
    return InvalidArgument("quantizer '", name, "' does not make ", FormatOf(encoding.format).name,
                           "; it makes: ", FormatsOf(encoding.quantizer));
  }
  return encoding;
}

std::string EncodingName(const Encoding& encoding) {
  const std::string_view format = FormatOf(encoding.format).name;
  if (encoding.quantizer == QuantizerId::kRtn) return std::string(format);
  return StrCat(format, ":", kQuantizers[static_cast<size_t>(encoding.quantizer)].name);
}

absl::Status EncodeRows(const Encoding& encoding, const float* weights, int rows, int cols, std::span<std::byte> out,
                        int first_row, const ErrorFeedback* feedback) {
  MOED_CHECK(out.size() == PackedBytes(encoding.format, rows, cols));
  MOED_CHECK(Makes(encoding.quantizer, encoding.format));
  MOED_CHECK(feedback == nullptr || feedback->cols() == cols);
  if (encoding.quantizer == QuantizerId::kGptq) {
    const Format& format = FormatOf(encoding.format);
    return feedback != nullptr ? EncodeFedBack(format, weights, rows, *feedback, out, first_row)
                               : EncodeFedBack(format, weights, rows, ErrorFeedback(cols), out, first_row);
  }
  const Format& format = FormatOf(encoding.format);
  std::byte* at = out.data();
  for (int panel = 0; panel < Panels(rows); ++panel) {
    float row_largest[kPanelRows] = {};
    if (encoding.quantizer == QuantizerId::kChannel) RowLargest(weights, rows, cols, panel, row_largest);
    for (int block = 0; block < Blocks(cols); ++block) {
      float gathered[kBlockWeights];
      if (!GatherBlock(weights, rows, cols, panel, block, format.largest, gathered)) {
        return MisfitError(format, weights, rows, cols, first_row);
      }
      EncodeBlock(format.codec, encoding.quantizer, gathered, row_largest, at);
      at += format.panel_block_bytes;
    }
  }
  return absl::OkStatus();
}

absl::Status EncodeRows(FormatId format, const float* weights, int rows, int cols, std::span<std::byte> out, int first_row) {
  return EncodeRows(Encoding{format}, weights, rows, cols, out, first_row);
}

}  // namespace moed
