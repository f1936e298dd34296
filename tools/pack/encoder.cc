#include "tools/pack/encoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/status.h"
#include "tools/pack/ordered_work.h"
#include "tools/pack/unpackable.h"

namespace moed {
namespace {

constexpr int64_t kChunkWeights = 1 << 18;  // 1 MiB of float32
constexpr int kChunksPerThread = 8;         // done ahead of what is taken, so that encoding goes on while the disk is waited for

// `count` numbers, `stride` from one to the next, the first of them number `first` of the source, to every `out_stride`th of
// `out`.
absl::Status ReadNumbers(const SourceTensor& source, int64_t first, int64_t count, int64_t stride, std::vector<std::byte>& raw,
                         float* out, int64_t out_stride) {
  const size_t bytes = source.type->block_bytes;
  raw.resize(((count - 1) * stride + 1) * bytes);
  MOED_RETURN_IF_ERROR(source.file->ReadAt(source.offset + first * bytes, raw));
  if (stride == 1 && out_stride == 1) {
    source.type->decode_row(raw.data(), static_cast<int>(count), out);
  } else {
    for (int64_t i = 0; i < count; ++i) source.type->decode_row(raw.data() + i * stride * bytes, 1, out + i * out_stride);
  }
  return absl::OkStatus();
}

// Rows of one group, whose first row is number `origin` of the source.
absl::Status ReadGroup(const SourceTensor& source, int64_t origin, int64_t rows, int64_t cols, std::vector<std::byte>& raw,
                       float* out) {
  if (source.row_stride < source.col_stride) {
    for (int64_t c = 0; c < cols; ++c) {
      MOED_RETURN_IF_ERROR(ReadNumbers(source, origin + c * source.col_stride, rows, source.row_stride, raw, out + c, cols));
    }
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      MOED_RETURN_IF_ERROR(ReadNumbers(source, origin + r * source.row_stride, cols, source.col_stride, raw, out + r * cols, 1));
    }
  }
  return absl::OkStatus();
}

// Rows of a matrix; what lies together in the file is read at once.
absl::Status ReadFloats(const SourceTensor& source, int64_t first_row, int64_t rows, int64_t cols, std::vector<std::byte>& raw,
                        std::vector<float>& out) {
  out.resize(rows * cols);
  if (source.row_stride == 0) {
    MOED_RETURN_IF_ERROR(ReadRows(source, first_row, rows, raw));
    for (int64_t r = 0; r < rows; ++r) {
      source.type->decode_row(raw.data() + r * source.row_bytes(), static_cast<int>(cols), out.data() + r * cols);
    }
    return absl::OkStatus();
  }
  const int64_t group_rows = source.group_rows > 0 ? source.group_rows : first_row + rows;
  for (int64_t r = 0; r < rows;) {
    const int64_t group = (first_row + r) / group_rows, in_group = (first_row + r) % group_rows;
    const int64_t count = std::min(rows - r, group_rows - in_group);
    const int64_t origin = group * source.group_stride + in_group * source.row_stride;
    MOED_RETURN_IF_ERROR(ReadGroup(source, origin, count, cols, raw, out.data() + r * cols));
    r += count;
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(std::span<const float> weights, int cols, int first_row) {
  const auto bad = std::find_if(weights.begin(), weights.end(), [](float weight) { return !std::isfinite(weight); });
  if (bad == weights.end()) return absl::OkStatus();
  const auto at = static_cast<int64_t>(bad - weights.begin());
  return Unpackable("row ", first_row + at / cols, ", column ", at % cols, " is ", *bad, ", expected a finite number");
}

EncodingError ErrorOfFirstPanel(FormatId format, std::span<const std::byte> packed, std::span<const float> weights, int rows,
                                int cols) {
  EncodingError error;
  std::vector<float> decoded(static_cast<size_t>(cols));
  for (int row = 0; row < std::min(rows, kPanelRows); ++row) {
    DecodeRow(format, packed.data(), cols, row, decoded.data());
    for (int column = 0; column < cols; ++column) {
      const double weight = weights[static_cast<size_t>(row) * cols + column], lost = weight - decoded[column];
      error.Add({lost * lost, weight * weight});
    }
  }
  return error;
}

// What the written numbers mean. Through double: the last bit does not depend on the math library.
void Read(Spelling spelling, std::span<float> numbers) {
  for (float& number : numbers) {
    if (spelling == Spelling::kLessOne) number = 1.0f + number;
    if (spelling == Spelling::kLogOfNegative) number = -static_cast<float>(std::exp(static_cast<double>(number)));
  }
}

void ScaleParts(const HeadFactor& factor, std::span<float> numbers) {
  if (factor.head_dim == 0) return;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (static_cast<int>(i % factor.head_dim) < factor.dims) numbers[i] = static_cast<float>(numbers[i] * factor.factor);
  }
}

// Whole panels.
int64_t RowsAtOnce(const SourceTensor& source) {
  return std::max<int64_t>(1, kChunkWeights / (kPanelRows * static_cast<int64_t>(source.shape[1]))) * kPanelRows;
}

absl::Status InTensor(const SourceTensor& source, const absl::Status& status) {
  absl::Status named(status.code(), StrCat(source.file->path(), ": tensor \"", source.name, "\": ", status.message()));
  return IsUnpackable(status) ? AsUnpackable(std::move(named)) : named;
}

}  // namespace

void TensorEncoder::Encode(const MatrixJob& job, Chunk& chunk) {
  const SourceTensor& source = *job.source;
  const std::vector<MatrixTarget>& targets = job.targets;
  const int cols = static_cast<int>(source.shape[1]);
  chunk.status = ReadFloats(source, chunk.first_row, chunk.rows, cols, chunk.raw, chunk.weights);
  chunk.packed.resize(targets.size());
  chunk.errors.assign(targets.size(), {});
  for (size_t i = 0; i < targets.size() && chunk.status.ok(); ++i) {
    chunk.packed[i].resize(PackedBytes(targets[i].encoding.format, chunk.rows, cols));
    if (targets[i].keeps_blocks) {
      chunk.status = CheckFinite(chunk.weights, cols, chunk.first_row);
      KeepRows(*source.type, chunk.raw.data(), chunk.rows, cols, chunk.packed[i].data());
    } else {
      chunk.status = AsUnpackable(EncodeRows(targets[i].encoding, chunk.weights.data(), chunk.rows, cols, chunk.packed[i],
                                             chunk.first_row, job.feedback));
      if (!chunk.status.ok()) return;
      chunk.errors[i] = ErrorOfFirstPanel(targets[i].encoding.format, chunk.packed[i], chunk.weights, chunk.rows, cols);
    }
  }
}

absl::Status TensorEncoder::EncodeMatrices(std::span<const MatrixJob> jobs, JobSink sink) {
  std::vector<int64_t> ends;  // by job: its chunks and those of all before
  for (const MatrixJob& job : jobs) {
    const int64_t chunks = CeilDiv(static_cast<int64_t>(job.source->shape[0]), RowsAtOnce(*job.source));
    ends.push_back((ends.empty() ? 0 : ends.back()) + chunks);
  }
  const auto job_of = [&](int64_t piece) { return static_cast<size_t>(std::ranges::upper_bound(ends, piece) - ends.begin()); };
  const auto make = [&](int64_t piece, int slot) {
    const size_t job = job_of(piece);
    const SourceTensor& source = *jobs[job].source;
    const int64_t first_row = (piece - (job == 0 ? 0 : ends[job - 1])) * RowsAtOnce(source);
    Chunk& chunk = chunks_[slot];
    chunk.first_row = static_cast<int>(first_row);
    chunk.rows = static_cast<int>(std::min(RowsAtOnce(source), static_cast<int64_t>(source.shape[0]) - first_row));
    Encode(jobs[job], chunk);
  };
  const auto take = [&](int64_t piece, int slot) {
    const size_t job = job_of(piece);
    const Chunk& chunk = chunks_[slot];
    if (!chunk.status.ok()) return InTensor(*jobs[job].source, chunk.status);
    for (size_t i = 0; i < chunk.packed.size(); ++i) MOED_RETURN_IF_ERROR(sink(job, i, chunk.packed[i], chunk.errors[i]));
    return absl::OkStatus();
  };
  const int window = executor_.threads() * kChunksPerThread;
  chunks_.resize(window);
  return WorkInOrder(executor_, ends.empty() ? 0 : ends.back(), window, make, take);
}

absl::Status TensorEncoder::EncodeVector(const SourceTensor& source, Sink sink, Spelling spelling, const HeadFactor& factor) {
  std::vector<std::byte> raw;
  std::vector<float> numbers;
  const bool one_row = source.shape.size() == 1;
  const absl::Status read = ReadFloats(source, 0, one_row ? 1 : source.shape[0], source.shape.back(), raw, numbers);
  if (!read.ok()) return InTensor(source, read);
  Read(spelling, numbers);
  ScaleParts(factor, numbers);
  const auto bad = std::find_if(numbers.begin(), numbers.end(), [](float number) { return !std::isfinite(number); });
  if (bad != numbers.end()) {
    return InTensor(source, Unpackable("element ", bad - numbers.begin(), " is ", *bad, ", expected a finite number"));
  }
  return sink(0, std::as_bytes(std::span(std::as_const(numbers))));
}

}  // namespace moed
