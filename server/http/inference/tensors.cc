#include "server/http/inference/tensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/base/utf8.h"

namespace moed::http {
namespace {

using google::protobuf::FieldDescriptor;
using inference::InferTensorContents;

static_assert(std::endian::native == std::endian::little, "the protocol's byte order");

constexpr std::string_view kBytes = "BYTES";

template <class T>
Json Read(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
Json ReadBool(const char* at) { return *at != 0; }

bool IsBool(const Json& value) { return value.is_boolean(); }
bool IsWhole(const Json& value) { return value.is_number_integer(); }
bool IsNumber(const Json& value) { return value.is_number(); }
bool IsText(const Json& value) { return value.is_string(); }

struct Datatype {
  std::string_view name;
  size_t bytes;                  // of an element; BYTES: its length stands before it
  Json (*read)(const char* at);  // null: BYTES
  bool (*is_json)(const Json& value);
  int contents_field;
};
constexpr Datatype kDatatypes[] = {
    {"BOOL", 1, ReadBool, IsBool, InferTensorContents::kBoolContentsFieldNumber},
    {"INT8", 1, Read<int8_t>, IsWhole, InferTensorContents::kIntContentsFieldNumber},
    {"INT16", 2, Read<int16_t>, IsWhole, InferTensorContents::kIntContentsFieldNumber},
    {"INT32", 4, Read<int32_t>, IsWhole, InferTensorContents::kIntContentsFieldNumber},
    {"INT64", 8, Read<int64_t>, IsWhole, InferTensorContents::kInt64ContentsFieldNumber},
    {"UINT8", 1, Read<uint8_t>, IsWhole, InferTensorContents::kUintContentsFieldNumber},
    {"UINT16", 2, Read<uint16_t>, IsWhole, InferTensorContents::kUintContentsFieldNumber},
    {"UINT32", 4, Read<uint32_t>, IsWhole, InferTensorContents::kUintContentsFieldNumber},
    {"UINT64", 8, Read<uint64_t>, IsWhole, InferTensorContents::kUint64ContentsFieldNumber},
    {"FP32", 4, Read<float>, IsNumber, InferTensorContents::kFp32ContentsFieldNumber},
    {"FP64", 8, Read<double>, IsNumber, InferTensorContents::kFp64ContentsFieldNumber},
    {kBytes, sizeof(uint32_t), nullptr, IsText, InferTensorContents::kBytesContentsFieldNumber},
};

absl::StatusOr<const Datatype*> FindDatatype(std::string_view name) {
  const auto* found = std::ranges::find(kDatatypes, name, &Datatype::name);
  if (found != std::end(kDatatypes)) return found;
  return InvalidArgument("the datatype \"", name.substr(0, 32), "\" is not read; those that are: ",
                         JoinNames(kDatatypes, [](const Datatype& known) { return known.name; }));
}

absl::StatusOr<Json> Checked(Json element) {
  if (element.is_string() && !IsValidUtf8(element.get_ref<const std::string&>())) return InvalidArgument("its text is no UTF-8");
  if (element.is_number_float() && !std::isfinite(element.get<double>())) return InvalidArgument("its element is not finite");
  return element;
}

Json FirstOf(const InferTensorContents& contents, const FieldDescriptor& field) {
  const auto& reflection = *InferTensorContents::GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetRepeatedBool(contents, &field, 0);
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetRepeatedInt32(contents, &field, 0);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.GetRepeatedInt64(contents, &field, 0);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetRepeatedUInt32(contents, &field, 0);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.GetRepeatedUInt64(contents, &field, 0);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return reflection.GetRepeatedFloat(contents, &field, 0);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetRepeatedDouble(contents, &field, 0);
    default:
      return reflection.GetRepeatedString(contents, &field, 0);
  }
}

}  // namespace

absl::Status CheckShape(std::span<const int64_t> shape) {
  if (shape.size() == 1 && shape[0] == 1) return absl::OkStatus();
  constexpr size_t kShown = 8;
  const std::string shown = JoinNames(shape.first(std::min(shape.size(), kShown)), [](int64_t dimension) { return dimension; });
  return InvalidArgument("its shape is [", shown, shape.size() > kShown ? ", ..." : "", "], allowed is [1]");
}

absl::StatusOr<Json> ElementOfBytes(std::string_view datatype, std::string_view bytes) {
  MOED_ASSIGN_OR_RETURN(const Datatype* const type, FindDatatype(datatype));
  uint32_t length = 0;
  if (type->read == nullptr) {
    if (bytes.size() >= sizeof(length)) std::memcpy(&length, bytes.data(), sizeof(length));
  }
  const uint64_t expected = uint64_t{type->bytes} + length;
  if (bytes.size() != expected) {
    return InvalidArgument("its contents have ", bytes.size(), " bytes, one element of ", type->name, " has ", expected);
  }
  return Checked(type->read == nullptr ? Json(std::string(bytes.substr(sizeof(length)))) : type->read(bytes.data()));
}

absl::StatusOr<Json> ElementOfContents(std::string_view datatype, const InferTensorContents& contents) {
  MOED_ASSIGN_OR_RETURN(const Datatype* const type, FindDatatype(datatype));
  std::vector<const FieldDescriptor*> filled;
  const auto& reflection = *InferTensorContents::GetReflection();
  reflection.ListFields(contents, &filled);
  const FieldDescriptor& field = *InferTensorContents::descriptor()->FindFieldByNumber(type->contents_field);
  for (const FieldDescriptor* other : filled) {
    if (other != &field)
      return InvalidArgument("its contents are ", other->name(), ", those of ", type->name, " are ", field.name());
  }
  const int elements = reflection.FieldSize(contents, &field);
  if (elements != 1) return InvalidArgument("its contents have ", elements, " elements, the shape has 1");
  return Checked(FirstOf(contents, field));
}

absl::StatusOr<Json> ElementOfJson(std::string_view datatype, const Json& data) {
  MOED_ASSIGN_OR_RETURN(const Datatype* const type, FindDatatype(datatype));
  if (!data.is_array()) return InvalidArgument("its data are ", ShownJson(data), ", allowed is an array");
  if (data.size() != 1) return InvalidArgument("its data have ", data.size(), " elements, the shape has 1");
  if (!type->is_json(data[0])) return InvalidArgument("its data have ", ShownJson(data[0]), ", which is no ", type->name);
  return data[0];
}

std::string BytesOfText(std::string_view text) {
  const auto length = static_cast<uint32_t>(text.size());
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes.append(text);
}

}  // namespace moed::http
