#include "tools/pack/encoder.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr int64_t kChunkWeights = 1 << 18;  // 1 MiB of float32
constexpr int kChunksPerThread = 2;         // so that threads of different speed end together

// `count` numbers, `stride` from one to the next, the first of them number `first` of the source, to every `out_stride`th of
// `out`.
absl::Status ReadNumbers(const SourceTensor& source, int64_t first, int64_t count, int64_t stride, std::vector<std::byte>& raw,
                         float* out, int64_t out_stride) {
  const size_t bytes = source.type->bytes;
  raw.resize(((count - 1) * stride + 1) * bytes);
  MOED_RETURN_IF_ERROR(source.file->ReadAt(source.offset + first * bytes, raw));
  if (stride == 1 && out_stride == 1) {
    source.type->to_float(raw.data(), count, out);
  } else {
    for (int64_t i = 0; i < count; ++i) source.type->to_float(raw.data() + i * stride * bytes, 1, out + i * out_stride);
  }
  return absl::OkStatus();
}

// Rows of a matrix; what lies together in the file is read at once.
absl::Status ReadFloats(const SourceTensor& source, int64_t first_row, int64_t rows, int64_t cols, std::vector<std::byte>& raw,
                        std::vector<float>& out) {
  out.resize(rows * cols);
  if (source.row_stride == 0) return ReadNumbers(source, first_row * cols, rows * cols, 1, raw, out.data(), 1);
  if (source.row_stride < source.col_stride) {
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t first = first_row * source.row_stride + c * source.col_stride;
      MOED_RETURN_IF_ERROR(ReadNumbers(source, first, rows, source.row_stride, raw, out.data() + c, cols));
    }
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t first = (first_row + r) * source.row_stride;
      MOED_RETURN_IF_ERROR(ReadNumbers(source, first, cols, source.col_stride, raw, out.data() + r * cols, 1));
    }
  }
  return absl::OkStatus();
}

absl::Status InTensor(const SourceTensor& source, const absl::Status& status) {
  return absl::Status(status.code(), StrCat(source.file->path(), ": tensor \"", source.name, "\": ", status.message()));
}

}  // namespace

void TensorEncoder::Encode(const SourceTensor& source, std::span<const MatrixTarget> targets, Chunk& chunk) {
  const int cols = static_cast<int>(source.shape[1]);
  chunk.status = ReadFloats(source, chunk.first_row, chunk.rows, cols, chunk.raw, chunk.weights);
  chunk.packed.resize(targets.size());
  for (size_t i = 0; i < targets.size() && chunk.status.ok(); ++i) {
    MOED_CHECK(!targets[i].keeps_blocks);  // no source has blocks
    chunk.packed[i].resize(PackedBytes(targets[i].encoding.format, chunk.rows, cols));
    chunk.status = EncodeRows(targets[i].encoding, chunk.weights.data(), chunk.rows, cols, chunk.packed[i], chunk.first_row);
  }
}

absl::Status TensorEncoder::EncodeMatrix(const SourceTensor& source, std::span<const MatrixTarget> targets, Sink sink) {
  const int rows = static_cast<int>(source.shape[0]), cols = static_cast<int>(source.shape[1]);
  const int64_t panels = Panels(rows);
  const int64_t panels_at_once = std::max<int64_t>(1, kChunkWeights / (int64_t{kPanelRows} * cols));
  const int64_t chunk_panels = std::min(panels_at_once, CeilDiv(panels, executor_.threads()));
  const int64_t chunk_count = CeilDiv(panels, chunk_panels);
  const int64_t wave = int64_t{executor_.threads()} * kChunksPerThread;
  chunks_.resize(wave);
  for (int64_t first = 0; first < chunk_count; first += wave) {
    const int count = static_cast<int>(std::min(wave, chunk_count - first));
    executor_.ParallelFor(count, 1, [&](int begin, int end) {
      for (int i = begin; i < end; ++i) {
        const int64_t row = (first + i) * chunk_panels * kPanelRows;
        chunks_[i].first_row = static_cast<int>(row);
        chunks_[i].rows = static_cast<int>(std::min<int64_t>(chunk_panels * kPanelRows, rows - row));
        Encode(source, targets, chunks_[i]);
      }
    });
    for (int i = 0; i < count; ++i) {
      if (!chunks_[i].status.ok()) return InTensor(source, chunks_[i].status);
      for (size_t f = 0; f < targets.size(); ++f) MOED_RETURN_IF_ERROR(sink(f, chunks_[i].packed[f]));
    }
  }
  return absl::OkStatus();
}

absl::Status TensorEncoder::EncodeVector(const SourceTensor& source, Sink sink) {
  std::vector<std::byte> raw;
  std::vector<float> numbers;
  const bool one_row = source.shape.size() == 1;
  const absl::Status read = ReadFloats(source, 0, one_row ? 1 : source.shape[0], source.shape.back(), raw, numbers);
  if (!read.ok()) return InTensor(source, read);
  const auto bad = std::find_if(numbers.begin(), numbers.end(), [](float number) { return !std::isfinite(number); });
  if (bad != numbers.end()) {
    return InTensor(source, InvalidArgument("element ", bad - numbers.begin(), " is ", *bad, ", expected a finite number"));
  }
  return sink(0, std::as_bytes(std::span(std::as_const(numbers))));
}

}  // namespace moed
