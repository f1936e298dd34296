#include "tools/pack/source_tensor.h"

#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "core/base/status.h"
#include "core/quant/safetensors_types.h"

namespace moed {
namespace {

class DecodedMatrix final : public RandomAccessFile {
 public:
  explicit DecodedMatrix(SourceTensor matrix)
      : matrix_(std::move(matrix)), cols_(matrix_.shape.back()), row_bytes_(cols_ * sizeof(float)) {}

  uint64_t size() const override {
    return std::accumulate(matrix_.shape.begin(), matrix_.shape.end(), uint64_t{sizeof(float)}, std::multiplies<>());
  }
  const std::string& path() const override { return matrix_.file->path(); }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    if (out.empty()) return absl::OkStatus();
    const uint64_t first = offset / row_bytes_, count = (offset + out.size() - 1) / row_bytes_ + 1 - first;
    std::vector<std::byte> raw;
    MOED_RETURN_IF_ERROR(ReadRows(matrix_, first, count, raw));
    std::vector<float> numbers(count * cols_);
    for (uint64_t row = 0; row < count; ++row) {
      DecodeRow(*matrix_.type, raw.data() + row * matrix_.row_bytes(), static_cast<int>(cols_), numbers.data() + row * cols_);
    }
    std::memcpy(out.data(), std::as_bytes(std::span(numbers)).data() + (offset - first * row_bytes_), out.size());
    return absl::OkStatus();
  }

 private:
  const SourceTensor matrix_;  // or matrices one below the other
  const uint64_t cols_;
  const uint64_t row_bytes_;  // decoded
};

}  // namespace

SourceTensor AsNumbers(SourceTensor matrix) {
  SourceTensor numbers;
  numbers.name = matrix.name;
  numbers.type = FindSafetensorsType("F32");
  numbers.shape = matrix.shape;
  numbers.file = std::make_shared<DecodedMatrix>(std::move(matrix));
  numbers.bytes = numbers.file->size();
  return numbers;
}

absl::Status ReadRows(const SourceTensor& tensor, uint64_t first, uint64_t count, std::vector<std::byte>& out) {
  const uint64_t row_bytes = tensor.row_bytes();
  out.resize(count * row_bytes);
  const auto read = [&](uint64_t row, uint64_t rows, std::span<std::byte> to) {
    return tensor.rows != nullptr ? tensor.rows->Read(row, rows, to.data())
                                  : tensor.file->ReadAt(tensor.offset + row * row_bytes, to);
  };
  if (tensor.row_order.empty()) return read(first, count, out);
  for (uint64_t i = 0; i < count;) {
    // What lies together is read at once.
    const uint32_t row = tensor.row_order[first + i];
    uint64_t rows = 1;
    while (i + rows < count && tensor.row_order[first + i + rows] == row + rows) ++rows;
    MOED_RETURN_IF_ERROR(read(row, rows, std::span(out).subspan(i * row_bytes, rows * row_bytes)));
    i += rows;
  }
  return absl::OkStatus();
}

}  // namespace moed
