#include "tools/pack/encoder.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr int64_t kChunkWeights = 1 << 18;  // 1 MiB of float32
constexpr int kChunksPerThread = 2;         // so that threads of different speed end together

absl::Status ReadFloats(const SourceTensor& source, uint64_t first, size_t count, std::vector<std::byte>& raw,
                        std::vector<float>& out) {
  raw.resize(count * source.type->bytes);
  out.resize(count);
  MOED_RETURN_IF_ERROR(source.file->ReadAt(source.offset + first * source.type->bytes, raw));
  source.type->to_float(raw.data(), count, out.data());
  return absl::OkStatus();
}

absl::Status InTensor(const SourceTensor& source, const absl::Status& status) {
  return absl::Status(status.code(), StrCat(source.file->path(), ": tensor \"", source.name, "\": ", status.message()));
}

}  // namespace

void TensorEncoder::Encode(const SourceTensor& source, std::span<const MatrixTarget> targets, Chunk& chunk) {
  const int cols = static_cast<int>(source.shape[1]);
  chunk.status = ReadFloats(source, static_cast<uint64_t>(chunk.first_row) * cols, static_cast<size_t>(chunk.rows) * cols,
                            chunk.raw, chunk.weights);
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
  const absl::Status read = ReadFloats(source, 0, source.shape[0], raw, numbers);
  if (!read.ok()) return InTensor(source, read);
  const auto bad = std::find_if(numbers.begin(), numbers.end(), [](float number) { return !std::isfinite(number); });
  if (bad != numbers.end()) {
    return InTensor(source, InvalidArgument("element ", bad - numbers.begin(), " is ", *bad, ", expected a finite number"));
  }
  return sink(0, std::as_bytes(std::span(std::as_const(numbers))));
}

}  // namespace moed
