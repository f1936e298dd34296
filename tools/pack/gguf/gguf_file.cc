#include "tools/pack/gguf/gguf_file.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "core/base/shape_name.h"
#include "core/base/status.h"
#include "core/base/utf8.h"
#include "tools/pack/gguf/byte_reader.h"

namespace moed {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMostKeys = 1 << 16, kMostTensors = 1 << 20;
constexpr uint64_t kMostKeyBytes = 65535, kMostNameBytes = 128;
constexpr uint64_t kMostTextBytes = 64 << 20;
constexpr uint64_t kMostElements = 1 << 23;  // of all arrays together
constexpr uint64_t kMostHeaderBytes = 512 << 20;
constexpr uint32_t kMostDimensions = 4;
constexpr int64_t kDefaultAlignment = 32, kMostAlignment = 1 << 20;

enum class ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kEnd };

// Names come from strangers: printable in a message, or refused.
absl::StatusOr<std::string> ReadName(ByteReader& reader, std::string_view field, uint64_t most) {
  MOED_ASSIGN_OR_RETURN(std::string name, reader.String(field, most));
  const bool control = std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!name.empty() && !control && IsValidUtf8(name)) return name;
  return InvalidArgument(field, " is \"", absl::CHexEscape(name.substr(0, 100)),
                         "\", allowed: UTF-8 without control characters, not empty");
}

absl::Status CheckWithinHeader(std::string_view what, const ByteReader& reader) {
  if (reader.position() <= kMostHeaderBytes) return absl::OkStatus();
  return InvalidArgument(what, " reaches byte ", reader.position(), ", allowed: at most ", kMostHeaderBytes);
}

// One array or one value into the alternatives of GgufValue.
class ValueReader {
 public:
  explicit ValueReader(ByteReader& reader) : reader_(reader) {}

  absl::StatusOr<GgufValue> Read(const std::string& field) {
    MOED_ASSIGN_OR_RETURN(const uint32_t type, reader_.Number<uint32_t>(StrCat("the type of ", field)));
    switch (static_cast<ValueType>(type)) {
      case ValueType::kU8:
        return Plain<uint64_t, uint8_t>(field);
      case ValueType::kI8:
        return Plain<int64_t, int8_t>(field);
      case ValueType::kU16:
        return Plain<uint64_t, uint16_t>(field);
      case ValueType::kI16:
        return Plain<int64_t, int16_t>(field);
      case ValueType::kU32:
        return Plain<uint64_t, uint32_t>(field);
      case ValueType::kI32:
        return Plain<int64_t, int32_t>(field);
      case ValueType::kU64:
        return Plain<uint64_t, uint64_t>(field);
      case ValueType::kI64:
        return Plain<int64_t, int64_t>(field);
      case ValueType::kF32:
        return Plain<double, float>(field);
      case ValueType::kF64:
        return Plain<double, double>(field);
      case ValueType::kBool: {
        MOED_ASSIGN_OR_RETURN(const int64_t bit, Bool(field));
        return GgufValue(std::in_place_type<bool>, bit == 1);
      }
      case ValueType::kString: {
        MOED_ASSIGN_OR_RETURN(std::string text, reader_.String(field, kMostTextBytes));
        return GgufValue(std::move(text));
      }
      case ValueType::kArray:
        return Array(field);
      case ValueType::kEnd:
        break;
    }
    return InvalidArgument("the type of ", field, " is ", type, ", allowed: 0 to ", static_cast<uint32_t>(ValueType::kEnd) - 1);
  }

 private:
  template <class Kept, class Stored>
  absl::StatusOr<GgufValue> Plain(const std::string& field) {
    MOED_ASSIGN_OR_RETURN(const Stored value, reader_.Number<Stored>(field));
    return GgufValue(std::in_place_type<Kept>, value);
  }

  absl::StatusOr<int64_t> Bool(const std::string& field) {
    MOED_ASSIGN_OR_RETURN(const uint8_t byte, reader_.Number<uint8_t>(field));
    if (byte > 1) return InvalidArgument(field, " is the bool ", byte, ", allowed: 0, 1");
    return byte;
  }

  template <class Stored>
  absl::StatusOr<int64_t> Whole(const std::string& field) {
    MOED_ASSIGN_OR_RETURN(const Stored value, reader_.Number<Stored>(field));
    if (!std::in_range<int64_t>(value)) return InvalidArgument(field, " holds ", value, ", allowed: at most 2^63 - 1");
    return static_cast<int64_t>(value);
  }

  // `element` is called `count` times; every one of them takes at least `least_bytes` of the file.
  template <class Kept, class Element>
  absl::StatusOr<GgufValue> Elements(const std::string& field, uint64_t count, uint64_t least_bytes, Element element) {
    if (count > reader_.left() / least_bytes) {
      return InvalidArgument(field, " has ", count, " elements of at least ", least_bytes, " bytes, the file has ",
                             reader_.left(), " more bytes");
    }
    std::vector<Kept> values;
    values.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      MOED_ASSIGN_OR_RETURN(Kept value, element());
      MOED_RETURN_IF_ERROR(CheckWithinHeader(field, reader_));
      values.push_back(std::move(value));
    }
    return GgufValue(std::move(values));
  }

  template <class Stored>
  absl::StatusOr<GgufValue> Wholes(const std::string& field, uint64_t count) {
    return Elements<int64_t>(field, count, sizeof(Stored), [&] { return Whole<Stored>(field); });
  }

  template <class Stored>
  absl::StatusOr<GgufValue> Floats(const std::string& field, uint64_t count) {
    return Elements<double>(field, count, sizeof(Stored),
                            [&]() -> absl::StatusOr<double> { return reader_.Number<Stored>(field); });
  }

  absl::StatusOr<GgufValue> Array(const std::string& field) {
    MOED_ASSIGN_OR_RETURN(const uint32_t type, reader_.Number<uint32_t>(StrCat("the element type of ", field)));
    MOED_ASSIGN_OR_RETURN(const uint64_t count, reader_.Number<uint64_t>(StrCat("the number of elements of ", field)));
    if (count > kMostElements - elements_) {
      return InvalidArgument(field, " has ", count, " elements, allowed: at most ", kMostElements,
                             " in all arrays together, of which ", elements_, " came before");
    }
    elements_ += count;
    switch (static_cast<ValueType>(type)) {
      case ValueType::kU8:
        return Wholes<uint8_t>(field, count);
      case ValueType::kI8:
        return Wholes<int8_t>(field, count);
      case ValueType::kU16:
        return Wholes<uint16_t>(field, count);
      case ValueType::kI16:
        return Wholes<int16_t>(field, count);
      case ValueType::kU32:
        return Wholes<uint32_t>(field, count);
      case ValueType::kI32:
        return Wholes<int32_t>(field, count);
      case ValueType::kU64:
        return Wholes<uint64_t>(field, count);
      case ValueType::kI64:
        return Wholes<int64_t>(field, count);
      case ValueType::kF32:
        return Floats<float>(field, count);
      case ValueType::kF64:
        return Floats<double>(field, count);
      case ValueType::kBool:
        return Elements<int64_t>(field, count, 1, [&] { return Bool(field); });
      case ValueType::kString:
        return Elements<std::string>(field, count, sizeof(uint64_t), [&] { return reader_.String(field, kMostTextBytes); });
      case ValueType::kArray:
      case ValueType::kEnd:
        break;
    }
    return InvalidArgument("the element type of ", field, " is ", type, ", allowed: 0 to ",
                           static_cast<uint32_t>(ValueType::kEnd) - 1, " but ", static_cast<uint32_t>(ValueType::kArray),
                           " (an array of arrays)");
  }

  ByteReader& reader_;
  uint64_t elements_ = 0;
};

struct Counts {
  uint64_t tensors, keys;
};

absl::StatusOr<Counts> ReadCounts(ByteReader& reader) {
  MOED_ASSIGN_OR_RETURN(const uint32_t magic, reader.Number<uint32_t>("the magic number"));
  if (magic != kMagic)
    return InvalidArgument("begins with ", absl::Hex(magic, absl::kZeroPad8), ", a GGUF file begins with \"GGUF\"");
  MOED_ASSIGN_OR_RETURN(const uint32_t version, reader.Number<uint32_t>("the version"));
  if (version != 2 && version != 3) {
    const bool swapped = version != 0 && (version & 0xffff) == 0;
    return InvalidArgument("is of version ", version, swapped ? " (big endian?)" : "", ", allowed: 2, 3, little endian");
  }
  Counts counts;
  MOED_ASSIGN_OR_RETURN(counts.tensors, reader.Number<uint64_t>("the number of tensors"));
  MOED_ASSIGN_OR_RETURN(counts.keys, reader.Number<uint64_t>("the number of keys"));
  if (counts.tensors > kMostTensors) {
    return InvalidArgument("the number of tensors is ", counts.tensors, ", allowed: at most ", kMostTensors);
  }
  if (counts.keys > kMostKeys) return InvalidArgument("the number of keys is ", counts.keys, ", allowed: at most ", kMostKeys);
  return counts;
}

absl::StatusOr<GgufMetadata> ReadMetadata(ByteReader& reader, uint64_t keys) {
  GgufMetadata metadata;
  ValueReader values(reader);
  for (uint64_t i = 0; i < keys; ++i) {
    MOED_ASSIGN_OR_RETURN(std::string key, ReadName(reader, StrCat("key ", i), kMostKeyBytes));
    MOED_ASSIGN_OR_RETURN(GgufValue value, values.Read(StrCat("key ", key)));
    MOED_RETURN_IF_ERROR(CheckWithinHeader(StrCat("key ", key), reader));
    if (!metadata.Add(key, std::move(value))) return InvalidArgument("key ", key, " appears twice");
  }
  return metadata;
}

// Bytes of all rows; nothing where that is more than any file has.
std::optional<uint64_t> TensorBytes(const GgmlType& type, const std::vector<uint64_t>& shape) {
  uint64_t bytes = shape.back() / static_cast<uint64_t>(type.block_columns);
  if (__builtin_mul_overflow(bytes, type.block_bytes, &bytes)) return std::nullopt;
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    if (__builtin_mul_overflow(bytes, shape[i], &bytes)) return std::nullopt;
  }
  return bytes;
}

// ggml's names of types that are not read, for who has to choose another file.
constexpr std::pair<uint32_t, std::string_view> kUnreadTypes[] = {
    {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {22, "IQ2_S"}, {29, "IQ1_M"}, {34, "TQ1_0"}, {35, "TQ2_0"}};

// Without file; offset still from the start of the data.
absl::StatusOr<GgufTensor> ReadTensor(ByteReader& reader, GgufTensor tensor) {
  MOED_ASSIGN_OR_RETURN(const uint32_t dimensions, reader.Number<uint32_t>("the number of dimensions"));
  if (dimensions < 1 || dimensions > kMostDimensions) {
    return InvalidArgument("the number of dimensions is ", dimensions, ", allowed: 1 to ", kMostDimensions);
  }
  for (uint32_t i = 0; i < dimensions; ++i) {
    MOED_ASSIGN_OR_RETURN(const uint64_t extent, reader.Number<uint64_t>(StrCat("dimension ", i)));
    if (extent == 0) return InvalidArgument("dimension ", i, " is 0, allowed: at least 1");
    tensor.shape.insert(tensor.shape.begin(), extent);
  }
  MOED_ASSIGN_OR_RETURN(const uint32_t type, reader.Number<uint32_t>("the type"));
  tensor.type = FindGgmlType(type);
  if (tensor.type == nullptr) {
    const auto* named = std::ranges::find(kUnreadTypes, type, &std::pair<uint32_t, std::string_view>::first);
    const std::string name = named == std::end(kUnreadTypes) ? "" : StrCat(" (", named->second, ")");
    return InvalidArgument("is of type ", type, name, ", known: ", JoinNames(GgmlTypes(), [](const GgmlType& known) {
                             return StrCat(known.name, " (", known.id, ")");
                           }));
  }
  if (tensor.shape.back() % static_cast<uint64_t>(tensor.type->block_columns) != 0) {
    return InvalidArgument("has ", tensor.shape.back(), " columns, allowed for ", tensor.type->name, ": multiples of ",
                           tensor.type->block_columns);
  }
  const std::optional<uint64_t> bytes = TensorBytes(*tensor.type, tensor.shape);
  if (!bytes) return InvalidArgument("shape ", ShapeName(tensor.shape), " is larger than any file");
  tensor.bytes = *bytes;
  MOED_ASSIGN_OR_RETURN(tensor.offset, reader.Number<uint64_t>("the offset"));
  return tensor;
}

absl::StatusOr<std::vector<GgufTensor>> ReadTable(ByteReader& reader, uint64_t count) {
  std::vector<GgufTensor> tensors;
  std::set<std::string, std::less<>> names;
  for (uint64_t i = 0; i < count; ++i) {
    MOED_ASSIGN_OR_RETURN(const std::string name, ReadName(reader, StrCat("the name of tensor ", i), kMostNameBytes));
    absl::StatusOr<GgufTensor> tensor = ReadTensor(reader, {.name = name});
    if (!tensor.ok()) return Annotate(tensor.status(), StrCat("tensor \"", name, "\""));
    MOED_RETURN_IF_ERROR(CheckWithinHeader("the table of tensors", reader));
    if (!names.insert(name).second) return InvalidArgument("tensor \"", name, "\" appears twice");
    tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<uint64_t> Alignment(const GgufMetadata& metadata) {
  MOED_ASSIGN_OR_RETURN(const int64_t alignment, metadata.IntOr("general.alignment", kDefaultAlignment, 1, kMostAlignment));
  if (!std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return InvalidArgument("key general.alignment is ", alignment, ", allowed: powers of two");
  }
  return static_cast<uint64_t>(alignment);
}

// Sorts by offset, which becomes the file's.
absl::Status PlaceTensors(std::vector<GgufTensor>& tensors, uint64_t table_end, uint64_t alignment, uint64_t file_bytes) {
  const uint64_t data = (table_end + alignment - 1) / alignment * alignment;
  const uint64_t data_bytes = file_bytes < data ? 0 : file_bytes - data;
  std::sort(tensors.begin(), tensors.end(), [](const GgufTensor& a, const GgufTensor& b) { return a.offset < b.offset; });
  const GgufTensor* before = nullptr;
  for (GgufTensor& tensor : tensors) {
    if (tensor.offset % alignment != 0) {
      return InvalidArgument("tensor \"", tensor.name, "\": the offset is ", tensor.offset, ", allowed: multiples of ",
                             alignment);
    }
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      return InvalidArgument("tensor \"", tensor.name, "\" of shape ", ShapeName(tensor.shape), " has ", tensor.bytes,
                             " bytes from byte ", tensor.offset, " of the data, which has ", data_bytes,
                             ": the file is truncated or damaged");
    }
    tensor.offset += data;
    if (before != nullptr && tensor.offset < before->offset + before->bytes) {
      return InvalidArgument("tensors \"", before->name, "\" and \"", tensor.name, "\" overlap");
    }
    before = &tensor;
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufFile> ReadHeader(const RandomAccessFile& file) {
  ByteReader reader(file);
  GgufFile read;
  MOED_ASSIGN_OR_RETURN(const Counts counts, ReadCounts(reader));
  MOED_ASSIGN_OR_RETURN(read.metadata, ReadMetadata(reader, counts.keys));
  MOED_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment(read.metadata));
  MOED_ASSIGN_OR_RETURN(read.tensors, ReadTable(reader, counts.tensors));
  MOED_RETURN_IF_ERROR(PlaceTensors(read.tensors, reader.position(), alignment, file.size()));
  return read;
}

}  // namespace

absl::StatusOr<GgufFile> ReadGguf(std::shared_ptr<const RandomAccessFile> file) {
  absl::StatusOr<GgufFile> read = ReadHeader(*file);
  if (!read.ok()) return Annotate(read.status(), file->path());
  for (GgufTensor& tensor : read->tensors) tensor.file = file;
  read->file = std::move(file);
  return read;
}

}  // namespace moed
