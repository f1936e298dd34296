#include "tools/pack/safetensors.h"

#include <algorithm>
#include <utility>

#include "core/base/json_value.h"
#include "core/base/shape_name.h"
#include "core/base/status.h"
#include "core/quant/safetensors_types.h"
#include "nlohmann/json.hpp"
#include "tools/pack/json_text.h"

namespace moed {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

absl::StatusOr<const BlockType*> FindType(const nlohmann::json& name) {
  const BlockType* type = name.is_string() ? FindSafetensorsType(name.get_ref<const std::string&>()) : nullptr;
  if (type != nullptr) return type;
  return InvalidArgument("dtype is ", ShownJson(name), ", expected one of ",
                         JoinNames(SafetensorsTypes(), [](const BlockType& t) { return t.name; }));
}

absl::StatusOr<std::vector<uint64_t>> ReadNumbers(std::string_view field, const nlohmann::json& list) {
  if (!list.is_array()) return InvalidArgument(field, " is ", list.type_name(), ", expected an array of numbers");
  std::vector<uint64_t> numbers;
  for (const nlohmann::json& number : list) {
    if (!number.is_number_unsigned())
      return InvalidArgument(field, " holds ", ShownJson(number), ", expected a non-negative integer");
    numbers.push_back(number.get<uint64_t>());
  }
  return numbers;
}

// Product x `factor`; false on overflow.
bool Multiply(std::span<const uint64_t> shape, uint64_t factor, uint64_t& product) {
  product = factor;
  for (const uint64_t extent : shape) {
    if (__builtin_mul_overflow(product, extent, &product)) return false;
  }
  return true;
}

// Without file; offset still from the start of the data, which has `data_bytes`.
absl::StatusOr<SourceTensor> ReadEntry(const std::string& name, const nlohmann::json& entry, uint64_t data_bytes) {
  if (!entry.is_object()) return InvalidArgument("its entry is ", entry.type_name(), ", expected an object");
  for (const std::string_view key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(key)) return InvalidArgument("its entry has no \"", key, "\"");
  }
  if (entry.size() != 3) return InvalidArgument("its entry has ", entry.size(), " keys, expected dtype, shape, data_offsets");
  SourceTensor tensor;
  tensor.name = name;
  MOED_ASSIGN_OR_RETURN(tensor.type, FindType(entry["dtype"]));
  MOED_ASSIGN_OR_RETURN(tensor.shape, ReadNumbers("shape", entry["shape"]));
  MOED_ASSIGN_OR_RETURN(const std::vector<uint64_t> offsets, ReadNumbers("data_offsets", entry["data_offsets"]));
  if (offsets.size() != 2) return InvalidArgument("data_offsets has ", offsets.size(), " numbers, expected 2");
  if (offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    return InvalidArgument("data_offsets are ", offsets[0], "..", offsets[1], ", expected a range within the file's ", data_bytes,
                           " bytes of data");
  }
  tensor.offset = offsets[0];
  tensor.bytes = offsets[1] - offsets[0];
  uint64_t expected;
  if (!Multiply(tensor.shape, tensor.type->block_bytes, expected)) {
    return InvalidArgument("shape ", ShapeName(tensor.shape), " is larger than any file");
  }
  if (tensor.bytes != expected) {
    return InvalidArgument("shape ", ShapeName(tensor.shape), " of ", tensor.type->name, " takes ", expected,
                           " bytes, its data_offsets span ", tensor.bytes);
  }
  return tensor;
}

absl::Status CheckMetadata(const nlohmann::json& metadata) {
  const bool strings =
      metadata.is_object() && std::all_of(metadata.begin(), metadata.end(), [](const auto& v) { return v.is_string(); });
  return strings ? absl::OkStatus() : InvalidArgument("__metadata__ must be an object of strings");
}

// Sorted by offset: each begins where the one before ends, and the last ends with the file.
absl::Status CheckCoverage(std::span<const SourceTensor> tensors, uint64_t data_bytes) {
  uint64_t end = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SourceTensor& tensor = tensors[i];
    if (tensor.offset < end) {
      return InvalidArgument("tensor \"", tensor.name, "\" begins at byte ", tensor.offset, " of the data, inside \"",
                             tensors[i - 1].name, "\", which ends at ", end);
    }
    if (tensor.offset > end) {
      return InvalidArgument("bytes ", end, "..", tensor.offset, " of the data, before tensor \"", tensor.name,
                             "\", belong to no tensor");
    }
    end = tensor.offset + tensor.bytes;
  }
  if (end != data_bytes) return InvalidArgument("the tensors end at byte ", end, " of the data, expected ", data_bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SourceTensor>> ReadHeader(const RandomAccessFile& file) {
  uint64_t length = 0;
  if (file.size() < kLengthBytes) {
    return InvalidArgument("a safetensors file has at least ", kLengthBytes, " bytes, this one has ", file.size());
  }
  MOED_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&length, 1))));
  const uint64_t limit = std::min(kMaxHeaderBytes, file.size() - kLengthBytes);
  if (length > limit) {
    return InvalidArgument("the header's length is ", length, ", expected at most ", limit, " in a file of ", file.size(),
                           " bytes");
  }
  std::string text(length, '\0');
  MOED_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, std::as_writable_bytes(std::span(text))));
  MOED_ASSIGN_OR_RETURN(const nlohmann::json header, ParseJsonObject("header", text));
  const uint64_t data_bytes = file.size() - kLengthBytes - length;
  std::vector<SourceTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      MOED_RETURN_IF_ERROR(CheckMetadata(entry));
      continue;
    }
    absl::StatusOr<SourceTensor> tensor = ReadEntry(name, entry, data_bytes);
    if (!tensor.ok()) return InvalidArgument("tensor \"", name, "\": ", tensor.status().message());
    tensors.push_back(*std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const SourceTensor& a, const SourceTensor& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  MOED_RETURN_IF_ERROR(CheckCoverage(tensors, data_bytes));
  for (SourceTensor& tensor : tensors) tensor.offset += kLengthBytes + length;
  return tensors;
}

}  // namespace

absl::StatusOr<std::vector<SourceTensor>> ReadSafetensors(std::shared_ptr<const RandomAccessFile> file) {
  absl::StatusOr<std::vector<SourceTensor>> tensors = ReadHeader(*file);
  if (!tensors.ok()) return absl::Status(tensors.status().code(), StrCat(file->path(), ": ", tensors.status().message()));
  for (SourceTensor& tensor : *tensors) tensor.file = file;
  return tensors;
}

}  // namespace moed
