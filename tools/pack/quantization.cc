#include "tools/pack/quantization.h"

#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/quant/safetensors_types.h"
#include "tools/pack/joining.h"
#include "tools/pack/nvfp4.h"
#include "tools/pack/quantized_rows.h"

namespace moed {
namespace {

using Tensors = SourceTensors;

// Which column belongs to which group: the ascending order is the only one that is read.
absl::Status CheckGroupIndex(const SourceTensor& index, uint64_t cols, uint64_t group) {
  MOED_RETURN_IF_ERROR(CheckTensor(index, "I32", {cols}));
  std::vector<std::byte> raw(index.bytes);
  MOED_RETURN_IF_ERROR(index.file->ReadAt(index.offset, raw));
  for (uint64_t column = 0; column < cols; ++column) {
    int32_t found;
    std::memcpy(&found, raw.data() + column * sizeof(found), sizeof(found));
    if (static_cast<uint64_t>(found) == column / group) continue;
    return WrongTensor(index, InvalidArgument("column ", column, " is of group ", found, ", expected ", column / group,
                                              ": columns out of their order (desc_act) are not read"));
  }
  return absl::OkStatus();
}

// The largest block that divides a group.
absl::StatusOr<const BlockType*> TypeOfGroups(const SourceTensor& codes, uint64_t cols, uint64_t group) {
  for (const BlockType* type : {&kGroupsOf128, &kGroupsOf32}) {
    const auto columns = static_cast<uint64_t>(type->block_columns);
    if (group % columns == 0 && cols % columns == 0) return type;
  }
  return WrongTensor(codes, InvalidArgument("has groups of ", group, " of its ", cols, " columns, expected a multiple of ",
                                            kGroupsOf32.block_columns));
}

absl::Status JoinGroups(const Quantization& quantization, const std::string& codes_name, Tensors& tensors) {
  constexpr uint64_t kWordCodes = 8;
  const bool awq = quantization.method == Quantization::Method::kAwq;
  const std::string base = codes_name.substr(0, codes_name.rfind('.') + 1);
  SourceTensor codes = std::move(tensors.extract(codes_name).mapped());
  MOED_RETURN_IF_ERROR(CheckMatrix(codes));
  const uint64_t rows = codes.shape[1] * (awq ? kWordCodes : 1), cols = codes.shape[0] * (awq ? 1 : kWordCodes);
  const uint64_t group = quantization.group == 0 ? cols : quantization.group;
  MOED_RETURN_IF_ERROR(CheckTensor(codes, "I32", codes.shape));
  MOED_ASSIGN_OR_RETURN(const BlockType* type, TypeOfGroups(codes, cols, group));
  const uint64_t groups = (cols + group - 1) / group;
  MOED_ASSIGN_OR_RETURN(const SourceTensor zeros, TakeTensor(base + "qzeros", codes, tensors));
  MOED_ASSIGN_OR_RETURN(const SourceTensor scales, TakeTensor(base + "scales", codes, tensors));
  MOED_RETURN_IF_ERROR(CheckTensor(scales, "F16", {groups, rows}));
  MOED_RETURN_IF_ERROR(CheckTensor(zeros, "I32", {groups, rows / kWordCodes}));
  if (rows % kWordCodes != 0) {
    return WrongTensor(codes, InvalidArgument("has ", rows, " rows, expected a multiple of ", kWordCodes));
  }
  if (tensors.contains(base + "g_idx")) {
    MOED_ASSIGN_OR_RETURN(const SourceTensor index, TakeTensor(base + "g_idx", codes, tensors));
    MOED_RETURN_IF_ERROR(CheckGroupIndex(index, cols, group));
  }
  if (const auto bias = tensors.find(base + "bias"); bias != tensors.end()) bias->second.zeros_mean_none = true;
  SourceTensor matrix{.name = base + "weight", .type = type, .shape = {rows, cols}, .file = codes.file};
  matrix.rows = GroupedRows({.awq = awq,
                             .codes = PlaceOf(codes),
                             .zeros = PlaceOf(zeros),
                             .scales = PlaceOf(scales),
                             .rows = rows,
                             .cols = cols,
                             .group = group,
                             .zero_term = quantization.zero_term,
                             .type = type});
  return AddJoined(std::move(matrix), tensors);
}

// "base.weight_packed" and its scales, as compressed-tensors has them.
absl::Status JoinPacked(const Quantization& quantization, const std::string& codes_name, Tensors& tensors) {
  constexpr uint64_t kWordCodes = 8;
  const std::string name = codes_name.substr(0, codes_name.rfind('_'));
  SourceTensor codes = std::move(tensors.extract(codes_name).mapped());
  MOED_RETURN_IF_ERROR(CheckMatrix(codes));
  MOED_RETURN_IF_ERROR(CheckTensor(codes, "I32", codes.shape));
  const uint64_t rows = codes.shape[0], cols = codes.shape[1] * kWordCodes;
  const uint64_t group = quantization.group == 0 ? cols : quantization.group;
  MOED_ASSIGN_OR_RETURN(const BlockType* type, TypeOfGroups(codes, cols, group));
  MOED_ASSIGN_OR_RETURN(const SourceTensor scales, TakeTensor(name + "_scale", codes, tensors));
  if (!scales.type->is_numbers()) return WrongTensor(scales, InvalidArgument("is ", scales.type->name, ", expected numbers"));
  MOED_RETURN_IF_ERROR(CheckTensor(scales, scales.type->name, {rows, (cols + group - 1) / group}));
  tensors.erase(name + "_shape");  // says again what the codes' shape says
  SourceTensor matrix{.name = name, .type = type, .shape = {rows, cols}, .file = codes.file};
  matrix.rows = PackedRows({.codes = PlaceOf(codes),
                            .scales = PlaceOf(scales),
                            .scale_type = scales.type,
                            .cols = cols,
                            .group = group,
                            .type = type});
  return AddJoined(std::move(matrix), tensors);
}

// Where a matrix has one scale, it may have either name.
std::string ScaleName(const Quantization& quantization, const std::string& name, const Tensors& tensors) {
  std::string inverse = StrCat(name, "_scale_inv");
  const bool inverted = quantization.block_rows == 0 && tensors.contains(inverse);
  return inverted ? inverse : StrCat(name, quantization.scale);
}

// A matrix, or those of all experts of a layer one below the other.
absl::Status JoinFp8(const Quantization& quantization, const std::string& name, Tensors& tensors) {
  SourceTensor codes = std::move(tensors.extract(name).mapped());
  const bool experts = codes.shape.size() == 3 && codes.shape[0] > 0;
  const uint64_t matrices = experts ? codes.shape[0] : 1;
  if (experts) codes.shape.erase(codes.shape.begin());
  MOED_RETURN_IF_ERROR(CheckMatrix(codes));
  const uint64_t rows = codes.shape[0], cols = codes.shape[1];
  const bool blocks = quantization.block_rows > 0;
  const uint64_t block_rows = blocks ? quantization.block_rows : rows;
  const uint64_t block_cols = blocks && quantization.block_cols > 0 ? quantization.block_cols : cols;
  const auto columns = static_cast<uint64_t>(kScaledE4m3.block_columns);
  if (cols % columns != 0 || block_cols % columns != 0) {
    return WrongTensor(
        codes, InvalidArgument("has blocks of ", block_cols, " of its ", cols, " columns, expected multiples of ", columns));
  }
  if (experts && rows % block_rows != 0) {
    return WrongTensor(codes,
                       InvalidArgument("has blocks of ", block_rows, " of an expert's ", rows, " rows, expected a divisor"));
  }
  MOED_ASSIGN_OR_RETURN(const SourceTensor scales, TakeTensor(ScaleName(quantization, name, tensors), codes, tensors));
  if (!scales.type->is_numbers()) return WrongTensor(scales, InvalidArgument("is ", scales.type->name, ", expected numbers"));
  std::vector<uint64_t> shape = {(rows + block_rows - 1) / block_rows, (cols + block_cols - 1) / block_cols};
  if (experts) {
    shape.insert(shape.begin(), matrices);
    codes.shape.insert(codes.shape.begin(), matrices);
  }
  const bool one_each = !blocks && scales.bytes == matrices * scales.type->block_bytes;  // whatever its extents
  if (!one_each) MOED_RETURN_IF_ERROR(CheckTensor(scales, scales.type->name, shape));
  SourceTensor matrix{.name = name, .type = &kScaledE4m3, .shape = codes.shape, .file = codes.file};
  matrix.rows = ScaledE4m3Rows({.codes = PlaceOf(codes),
                                .scales = PlaceOf(scales),
                                .scale_type = scales.type,
                                .cols = cols,
                                .block_rows = block_rows,
                                .block_cols = block_cols});
  return AddJoined(std::move(matrix), tensors);
}

absl::Status JoinAllFp8(const Quantization& quantization, Tensors& tensors) {
  for (const std::string_view end : {".weight", ".experts.gate_up_proj", ".experts.down_proj"}) {
    for (const std::string& name : NamesEndingWith(end, tensors)) {
      if (tensors.at(name).type->name == "F8_E4M3") MOED_RETURN_IF_ERROR(JoinFp8(quantization, name, tensors));
    }
  }
  return absl::OkStatus();
}

// Of what would be rounded while the model runs.
void DropScalesOfActivations(Tensors& tensors) {
  for (const std::string_view end : {".input_scale", "_input_scale", ".input_global_scale", ".activation_scale",
                                     "_activation_scale", ".k_scale", ".v_scale"}) {
    for (const std::string& name : NamesEndingWith(end, tensors)) tensors.erase(name);
  }
}

}  // namespace

absl::Status JoinQuantized(const Quantization& quantization, Tensors& tensors) {
  using Method = Quantization::Method;
  if (quantization.method == Method::kAwq || quantization.method == Method::kGptq) {
    for (const std::string& name : NamesEndingWith(".qweight", tensors)) {
      MOED_RETURN_IF_ERROR(JoinGroups(quantization, name, tensors));
    }
  }
  if (quantization.method == Method::kPacked) {
    for (const std::string& name : NamesEndingWith(".weight_packed", tensors)) {
      MOED_RETURN_IF_ERROR(JoinPacked(quantization, name, tensors));
    }
  }
  if (quantization.method == Method::kNvfp4) MOED_RETURN_IF_ERROR(JoinCompressedNvfp4(tensors));
  if (quantization.method == Method::kModelOpt) MOED_RETURN_IF_ERROR(JoinModelOptNvfp4(tensors));
  if (quantization.method == Method::kFp8 || quantization.method == Method::kModelOpt) {
    MOED_RETURN_IF_ERROR(JoinAllFp8(quantization, tensors));
  }
  if (quantization.method != Method::kAwq && quantization.method != Method::kGptq && quantization.method != Method::kNone) {
    DropScalesOfActivations(tensors);
  }
  return absl::OkStatus();
}

}  // namespace moed
