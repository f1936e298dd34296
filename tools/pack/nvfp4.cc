#include "tools/pack/nvfp4.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/quant/safetensors_types.h"

namespace moed {
namespace {

constexpr uint64_t kPartColumns = 16;  // that share a scale
constexpr std::string_view kBytes = "U8";

// Between them products with scales neither vanish nor overflow.
constexpr float kLeast = 0x1p-64f, kMost = 0x1p64f;

// Of the number that multiplies, or divides. 1 / g is not a float32, but the sum of two as near as no quotient tells them apart.
Nvfp4Factor FactorOf(float number, bool divides) {
  if (!divides) return {.factor = number / 2, .rest = 0};
  const double half_inverse = 0.5 / static_cast<double>(number);
  const auto factor = static_cast<float>(half_inverse);
  return {.factor = factor, .rest = static_cast<float>(half_inverse - static_cast<double>(factor))};
}

// `count` factors of a tensor that has so many numbers, or one for all.
absl::StatusOr<std::vector<Nvfp4Factor>> ReadFactors(const SourceTensor& numbers, uint64_t count, bool divides) {
  if (!numbers.type->is_numbers() || numbers.type->block_columns != 1) {
    return WrongTensor(numbers, InvalidArgument("is ", numbers.type->name, ", expected numbers"));
  }
  const uint64_t found = numbers.bytes / numbers.type->block_bytes;
  if (found != 1 && found != count) {
    return WrongTensor(numbers,
                       InvalidArgument("has ", found, " numbers, expected ", count == 1 ? "" : StrCat(count, " or "), "1"));
  }
  std::vector<std::byte> raw(numbers.bytes);
  MOED_RETURN_IF_ERROR(numbers.file->ReadAt(numbers.offset, raw));
  std::vector<float> read(found);
  DecodeRow(*numbers.type, raw.data(), static_cast<int>(found), read.data());
  std::vector<Nvfp4Factor> factors;
  for (uint64_t i = 0; i < count; ++i) {
    const float number = read[found == 1 ? 0 : i];
    if (!(number >= kLeast && number <= kMost)) {
      return WrongTensor(numbers, InvalidArgument("is ", number, ", expected a number from ", kLeast, " to ", kMost));
    }
    factors.push_back(FactorOf(number, divides));
  }
  return factors;
}

absl::Status CheckColumns(const SourceTensor& codes, uint64_t cols) {
  const auto columns = static_cast<uint64_t>(kNvfp4Blocks.block_columns);
  if (cols > 0 && cols % columns == 0) return absl::OkStatus();
  return WrongTensor(codes, InvalidArgument("has ", cols, " columns of NVFP4, expected a multiple of ", columns));
}

// What a form calls the tensors of "name".
struct TensorNames {
  std::string codes, scales, numbers;
  bool divides;
};

// A matrix, or those of all experts of a layer one below the other.
absl::Status Join(const std::string& name, const TensorNames& names, SourceTensors& tensors) {
  SourceTensor codes = std::move(tensors.extract(names.codes).mapped());
  const bool experts = codes.shape.size() == 3 && codes.shape[0] > 0;
  const uint64_t matrices = experts ? codes.shape[0] : 1;
  if (!experts) MOED_RETURN_IF_ERROR(CheckMatrix(codes));
  MOED_RETURN_IF_ERROR(CheckTensor(codes, kBytes, codes.shape));
  std::vector<uint64_t> shape = codes.shape, scales_shape = codes.shape;
  const uint64_t rows = shape[shape.size() - 2], cols = 2 * shape.back();
  shape.back() = cols;
  scales_shape.back() = cols / kPartColumns;
  MOED_ASSIGN_OR_RETURN(const SourceTensor scales, TakeTensor(names.scales, codes, tensors));
  MOED_ASSIGN_OR_RETURN(const SourceTensor numbers, TakeTensor(names.numbers, codes, tensors));
  MOED_RETURN_IF_ERROR(CheckTensor(scales, "F8_E4M3", scales_shape));
  MOED_RETURN_IF_ERROR(CheckColumns(codes, cols));
  MOED_ASSIGN_OR_RETURN(std::vector<Nvfp4Factor> factors, ReadFactors(numbers, matrices, names.divides));
  SourceTensor matrix{.name = name, .type = &kNvfp4Blocks, .shape = std::move(shape), .file = codes.file};
  matrix.rows = Nvfp4Rows(
      {.codes = PlaceOf(codes), .scales = PlaceOf(scales), .cols = cols, .matrix_rows = rows, .factors = std::move(factors)});
  return AddJoined(std::move(matrix), tensors);
}

}  // namespace

absl::Status JoinCompressedNvfp4(SourceTensors& tensors) {
  for (const std::string& codes : NamesEndingWith("_packed", tensors)) {
    const std::string name = codes.substr(0, codes.rfind('_'));
    const TensorNames names = {codes, name + "_scale", name + "_global_scale", true};
    MOED_RETURN_IF_ERROR(Join(name, names, tensors));
  }
  return absl::OkStatus();
}

absl::Status JoinModelOptNvfp4(SourceTensors& tensors) {
  for (const std::string_view end : {".weight", ".experts.gate_up_proj", ".experts.down_proj"}) {
    for (const std::string& name : NamesEndingWith(end, tensors)) {
      if (tensors.at(name).type->name != kBytes) continue;
      const std::string scales = StrCat(name, end == ".weight" ? "_scale" : "_weight_scale");
      MOED_RETURN_IF_ERROR(Join(name, {name, scales, scales + "_2", false}, tensors));
    }
  }
  return absl::OkStatus();
}

absl::Status GiveNvfp4Scale(const SourceTensor* scales, uint64_t index, uint64_t matrices, SourceTensor& matrix) {
  if (matrix.type->kept != FormatId::kNvfp4 || matrix.rows != nullptr) return absl::OkStatus();
  Nvfp4Factor factor;
  if (scales != nullptr) {
    MOED_ASSIGN_OR_RETURN(const std::vector<Nvfp4Factor> factors, ReadFactors(*scales, matrices, false));
    factor = factors[index];
  }
  matrix.rows = Nvfp4Rows({matrix.file, matrix.offset}, matrix.shape.back(), factor);
  matrix.type = &kNvfp4Blocks;
  return absl::OkStatus();
}

}  // namespace moed
