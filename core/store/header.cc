#include "core/store/header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/store/checksum.h"
#include "core/store/damage.h"

namespace moed {
namespace {

static_assert(std::endian::native == std::endian::little, "the store is little-endian and read in place");

// Offsets of the fixed header's fields.
constexpr size_t kVersionAt = 8;
constexpr size_t kAlignmentAt = 12;
constexpr size_t kFileBytesAt = 16;
constexpr size_t kDescriptionBytesAt = 24;
constexpr size_t kTrunkOffsetAt = 32;
constexpr size_t kTrunkBytesAt = 40;
constexpr size_t kTokenizerOffsetAt = 48;
constexpr size_t kTokenizerBytesAt = 56;
constexpr size_t kTokenizerChecksumAt = 64;
constexpr size_t kRecordsOffsetAt = 72;
constexpr size_t kReservedAt = 80;  // 40 bytes of zero
constexpr size_t kChecksumAt = 120;

constexpr size_t kSegmentBytes = 32;
constexpr size_t kLeastLayoutBytes = 16 + kLeastExpertParts * kSegmentBytes;
constexpr size_t kTensorFixedBytes = 40;  // beside its name

template <class T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
template <class T>
void PutAt(std::string& out, size_t at, T value) {
  std::memcpy(out.data() + at, &value, sizeof(T));
}
template <class T>
T GetAt(std::string_view in, size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof(T));
  return value;
}

// Reads a description front to back; every step is checked against what is left.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  absl::Status Take(std::string_view field, T& value) {
    MOED_RETURN_IF_ERROR(Need(field, 1, sizeof(T)));
    value = GetAt<T>(bytes_, position_);
    position_ += sizeof(T);
    return absl::OkStatus();
  }
  absl::Status TakeString(std::string_view field, uint64_t size, std::string& value) {
    MOED_RETURN_IF_ERROR(Need(field, size, 1));
    value.assign(bytes_.substr(position_, size));
    position_ += size;
    return absl::OkStatus();
  }
  // `count` is followed by at least count x item_bytes.
  absl::Status TakeCount(std::string_view field, size_t item_bytes, uint32_t& count) {
    MOED_RETURN_IF_ERROR(Take(field, count));
    return Need(field, count, item_bytes);
  }
  template <class T>
  absl::Status TakeZero(std::string_view field) {
    T value;
    MOED_RETURN_IF_ERROR(Take(field, value));
    if (value != 0) return InvalidArgument("reserved field in ", field, " is ", value, ", expected 0");
    return absl::OkStatus();
  }
  uint64_t left() const { return bytes_.size() - position_; }

 private:
  absl::Status Need(std::string_view field, uint64_t count, uint64_t item_bytes) const {
    if (count <= left() / item_bytes) return absl::OkStatus();
    return InvalidArgument(field, ": ", count, " x ", item_bytes, " bytes expected, ", left(), " bytes left in the description");
  }

  std::string_view bytes_;
  size_t position_ = 0;
};

// The format of all segments stands before them in version 1, that of each in itself in version 2.
void PutLayout(std::string& out, uint32_t version, const ExpertLayout& layout) {
  const bool one = version == kOneFormatVersion;
  Put<uint32_t>(out, one ? static_cast<uint32_t>(layout.segments[0].format) : 0);
  Put<uint32_t>(out, static_cast<uint32_t>(layout.segments.size()));
  Put<uint64_t>(out, layout.record_bytes);
  for (const ExpertSegment& segment : layout.segments) {
    Put<uint32_t>(out, static_cast<uint32_t>(segment.part));
    Put<uint32_t>(out, static_cast<uint32_t>(segment.rows));
    Put<uint32_t>(out, static_cast<uint32_t>(segment.cols));
    Put<uint32_t>(out, one ? 0 : static_cast<uint32_t>(segment.format));
    Put<uint64_t>(out, segment.offset);
    Put<uint64_t>(out, segment.bytes);
  }
}

void PutTensor(std::string& out, const TensorInfo& tensor, uint64_t checksum) {
  Put<uint16_t>(out, static_cast<uint16_t>(tensor.name.size()));
  Put<uint8_t>(out, static_cast<uint8_t>(tensor.format));
  Put<uint8_t>(out, tensor.vector ? 1 : 0);
  Put<uint32_t>(out, static_cast<uint32_t>(tensor.rows));
  Put<uint32_t>(out, static_cast<uint32_t>(tensor.cols));
  Put<uint32_t>(out, 0);
  Put<uint64_t>(out, tensor.offset);
  Put<uint64_t>(out, tensor.bytes);
  Put<uint64_t>(out, checksum);
  out += tensor.name;
}

size_t LayoutsWritten(uint32_t version, size_t moe_layers) { return version == kOneFormatVersion ? 1 : moe_layers; }

std::string EncodeDescription(const StoreDescription& description, const FileLayout& layout,
                              const std::vector<uint64_t>& checksums) {
  std::string out;
  out.reserve(layout.description_bytes());
  Put<uint32_t>(out, static_cast<uint32_t>(description.model_spec.size()));
  out += description.model_spec;
  Put<uint32_t>(out, static_cast<uint32_t>(description.experts_per_layer));
  Put<uint32_t>(out, static_cast<uint32_t>(description.moe_layers.size()));
  for (const LayerId layer : description.moe_layers) Put<int32_t>(out, layer.value());
  Put<uint32_t>(out, static_cast<uint32_t>(description.precisions.size()));
  const uint32_t version = StoreVersion(description);
  for (const ExpertPrecision& precision : description.precisions) {
    const size_t written = LayoutsWritten(version, precision.layers.size());
    for (size_t i = 0; i < written; ++i) PutLayout(out, version, precision.layers[i]);
  }
  Put<uint32_t>(out, static_cast<uint32_t>(description.trunk.size()));
  for (size_t i = 0; i < description.trunk.size(); ++i) PutTensor(out, description.trunk[i], checksums[layout.TensorPiece(i)]);
  for (size_t i = layout.TokenizerPiece() + 1; i < layout.piece_count(); ++i) Put<uint64_t>(out, checksums[i]);
  for (const uint64_t bytes : description.coded_bytes) Put<uint64_t>(out, bytes);
  MOED_CHECK(out.size() == layout.description_bytes());
  return out;
}

// A number that the description holds as u32 and this program as int; out-of-range ones become -1, which no range check lets
// pass.
int AsInt(uint32_t value) { return value <= INT32_MAX ? static_cast<int>(value) : -1; }

absl::Status TakeFormat(Cursor& in, FormatId& format) {
  uint32_t number;
  MOED_RETURN_IF_ERROR(in.Take("expert format", number));
  if (number > UINT8_MAX) return InvalidArgument("expert format is ", number, ", expected a number below 256");
  format = static_cast<FormatId>(number);
  return absl::OkStatus();
}

absl::Status TakeLayout(Cursor& in, uint32_t version, ExpertLayout& layout) {
  const bool one = version == kOneFormatVersion;
  FormatId format = FormatId::kF32;
  uint32_t segments, rows, cols, part;
  MOED_RETURN_IF_ERROR(one ? TakeFormat(in, format) : in.TakeZero<uint32_t>("expert layout"));
  MOED_RETURN_IF_ERROR(in.TakeCount("segments of an expert", kSegmentBytes, segments));
  if (segments < kLeastExpertParts || segments > kExpertParts) {
    return InvalidArgument("an expert has ", segments, " segments, expected ", kLeastExpertParts, " or ", kExpertParts);
  }
  const uint32_t first_part = kExpertParts - segments;
  MOED_RETURN_IF_ERROR(in.Take("record bytes", layout.record_bytes));
  for (uint32_t i = 0; i < segments; ++i) {
    ExpertSegment& segment = layout.segments.emplace_back();
    MOED_RETURN_IF_ERROR(in.Take("segment part", part));
    if (part != first_part + i) return InvalidArgument("segment ", i, " is part ", part, ", expected ", first_part + i);
    segment.part = static_cast<ExpertPart>(part);
    segment.format = format;
    MOED_RETURN_IF_ERROR(in.Take("segment rows", rows));
    MOED_RETURN_IF_ERROR(in.Take("segment columns", cols));
    segment.rows = AsInt(rows);
    segment.cols = AsInt(cols);
    MOED_RETURN_IF_ERROR(one ? in.TakeZero<uint32_t>("segment") : TakeFormat(in, segment.format));
    MOED_RETURN_IF_ERROR(in.Take("segment offset", segment.offset));
    MOED_RETURN_IF_ERROR(in.Take("segment bytes", segment.bytes));
  }
  return absl::OkStatus();
}

absl::Status TakeTensor(Cursor& in, TensorInfo& tensor, uint64_t& checksum) {
  uint16_t name_bytes;
  uint8_t format, vector;
  uint32_t rows, cols;
  MOED_RETURN_IF_ERROR(in.Take("tensor name bytes", name_bytes));
  MOED_RETURN_IF_ERROR(in.Take("tensor format", format));
  MOED_RETURN_IF_ERROR(in.Take("tensor kind", vector));
  if (vector > 1) return InvalidArgument("tensor kind is ", static_cast<int>(vector), ", expected 0 (matrix) or 1 (vector)");
  MOED_RETURN_IF_ERROR(in.Take("tensor rows", rows));
  MOED_RETURN_IF_ERROR(in.Take("tensor columns", cols));
  MOED_RETURN_IF_ERROR(in.TakeZero<uint32_t>("tensor"));
  MOED_RETURN_IF_ERROR(in.Take("tensor offset", tensor.offset));
  MOED_RETURN_IF_ERROR(in.Take("tensor bytes", tensor.bytes));
  MOED_RETURN_IF_ERROR(in.Take("tensor checksum", checksum));
  MOED_RETURN_IF_ERROR(in.TakeString("tensor name", name_bytes, tensor.name));
  tensor.format = static_cast<FormatId>(format);
  tensor.vector = vector == 1;
  tensor.rows = AsInt(rows);
  tensor.cols = AsInt(cols);
  return absl::OkStatus();
}

// Layouts as they are written: by MoE layer, or one for all.
absl::Status TakePrecisions(Cursor& in, uint32_t version, StoreDescription& description) {
  MOED_RETURN_IF_ERROR(CheckLayers(description));
  const size_t written = LayoutsWritten(version, description.moe_layers.size());
  uint32_t count;
  MOED_RETURN_IF_ERROR(in.TakeCount("expert precisions", kLeastLayoutBytes * written, count));
  for (uint32_t i = 0; i < count; ++i) {
    ExpertPrecision& precision = description.precisions.emplace_back();
    precision.layers.resize(written);
    for (ExpertLayout& layout : precision.layers) MOED_RETURN_IF_ERROR(TakeLayout(in, version, layout));
  }
  return absl::OkStatus();
}

// Fills everything but the layout; the checksums are those of trunk (then 0 for the tokenizer) and experts.
absl::Status DecodeDescription(std::string_view bytes, uint32_t version, StoreHeader& header) {
  Cursor in(bytes);
  StoreDescription& description = header.description;
  uint32_t count;
  MOED_RETURN_IF_ERROR(in.TakeCount("model spec", 1, count));
  MOED_RETURN_IF_ERROR(in.TakeString("model spec", count, description.model_spec));
  MOED_RETURN_IF_ERROR(in.Take("experts per layer", count));
  description.experts_per_layer = AsInt(count);
  MOED_RETURN_IF_ERROR(in.TakeCount("MoE layers", sizeof(int32_t), count));
  for (uint32_t i = 0; i < count; ++i) {
    int32_t layer;
    MOED_RETURN_IF_ERROR(in.Take("MoE layer", layer));
    description.moe_layers.push_back(LayerId(layer));
  }
  MOED_RETURN_IF_ERROR(TakePrecisions(in, version, description));
  MOED_RETURN_IF_ERROR(in.TakeCount("trunk tensors", kTensorFixedBytes, count));
  for (uint32_t i = 0; i < count; ++i) {
    MOED_RETURN_IF_ERROR(TakeTensor(in, description.trunk.emplace_back(), header.checksums.emplace_back()));
  }
  header.checksums.push_back(0);
  const size_t parts = description.precisions.empty() ? 0 : PartCount(description);
  const unsigned __int128 expected = static_cast<unsigned __int128>(description.precisions.size()) *
                                     description.moe_layers.size() * static_cast<uint32_t>(description.experts_per_layer) *
                                     parts * sizeof(uint64_t) * (version == kCodedVersion ? 2 : 1);
  if (expected != in.left()) {
    return InvalidArgument(version == kCodedVersion ? "checksums and coded bytes of " : "checksums of ",
                           description.precisions.size(), " precisions x ", description.moe_layers.size(), " layers x ",
                           description.experts_per_layer, " experts x ", parts, " segments expected, ", in.left(),
                           " bytes left in the description");
  }
  const uint64_t behind_checksums = version == kCodedVersion ? in.left() / 2 : 0;
  while (in.left() > behind_checksums) MOED_RETURN_IF_ERROR(in.Take("segment checksum", header.checksums.emplace_back()));
  while (in.left() > 0) MOED_RETURN_IF_ERROR(in.Take("coded bytes", description.coded_bytes.emplace_back()));
  // Only now, with a checksum for every record, is it known that there are so many layers.
  for (ExpertPrecision& precision : description.precisions) {
    if (version == kOneFormatVersion) precision.layers.assign(description.moe_layers.size(), ExpertLayout(precision.layers[0]));
  }
  if (const uint32_t expected_version = StoreVersion(description); version != expected_version) {
    return InvalidArgument("every precision has one format, which is version ", expected_version, ", not ", version);
  }
  return absl::OkStatus();
}

struct Field {
  std::string_view name;
  size_t at;
  uint64_t expected;
};

uint64_t HeaderChecksum(std::string_view header_region, uint64_t description_bytes) {
  ChecksumStream stream;
  const auto bytes = std::as_bytes(std::span(header_region));
  stream.Update(bytes.first(kChecksumAt));
  stream.Update(bytes.subspan(kHeaderBytes, description_bytes));
  return stream.Value();
}

// Everything of the fixed part that can be told without the description.
absl::Status CheckFixedPart(const RandomAccessFile& file, std::string_view fixed) {
  const std::string_view magic = fixed.substr(0, kStoreMagic.size());
  if (magic == std::string_view("\0\0\0\0\0\0\0\0", 8)) {
    return FailedPrecondition(file.path(),
                              " is an unfinished pack: its header has not been written; run moed-pack again to finish it");
  }
  if (magic.starts_with("GGUF")) {
    return InvalidArgument(file.path(), " is a GGUF file, not a store; this makes one of it: moed-pack ", file.path(), " OUT");
  }
  if (magic != kStoreMagic) {
    std::string shown;
    for (const char c : magic) shown += c >= ' ' && c <= '~' ? c : '?';
    return InvalidArgument(file.path(), " is not a store: expected \"", kStoreMagic, "\" at its start, found \"", shown, "\"");
  }
  const uint32_t version = GetAt<uint32_t>(fixed, kVersionAt);
  if (version < kOneFormatVersion || version > kCodedVersion) {
    return FailedPrecondition(file.path(), " is a store of version ", version, ", expected version ", kOneFormatVersion, " to ",
                              kCodedVersion, "; pack the checkpoint again");
  }
  const uint64_t file_bytes = GetAt<uint64_t>(fixed, kFileBytesAt);
  if (file_bytes != file.size()) {
    return DataLoss(file.path(), file.size() < file_bytes ? " is truncated" : " is too long", ": its header says ", file_bytes,
                    " bytes, the file has ", file.size());
  }
  const uint64_t description_bytes = GetAt<uint64_t>(fixed, kDescriptionBytesAt);
  if (description_bytes > kMaxDescriptionBytes || description_bytes > file.size() - kHeaderBytes) {
    return DataLoss(file.path(), ": the description has ", description_bytes, " bytes, expected at most ",
                    std::min(kMaxDescriptionBytes, file.size() - kHeaderBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckFields(std::string_view fixed, const StoreHeader& header) {
  const FileLayout& layout = header.layout;
  const Field fields[] = {
      {"description bytes", kDescriptionBytesAt, layout.description_bytes()},
      {"file bytes", kFileBytesAt, layout.file_bytes()},
      {"trunk offset", kTrunkOffsetAt, layout.trunk_offset()},
      {"tokenizer offset", kTokenizerOffsetAt, layout.tokenizer_offset()},
      {"records offset", kRecordsOffsetAt, layout.records_offset()},
  };
  for (const Field& field : fields) {
    const uint64_t found = GetAt<uint64_t>(fixed, field.at);
    if (found != field.expected) return InvalidArgument(field.name, " is ", found, ", expected ", field.expected);
  }
  const uint32_t alignment = GetAt<uint32_t>(fixed, kAlignmentAt);
  if (alignment != kStoreAlignment) return InvalidArgument("alignment is ", alignment, ", expected ", kStoreAlignment);
  for (size_t at = kReservedAt; at < kChecksumAt; ++at) {
    if (fixed[at] != 0) return InvalidArgument("reserved byte ", at, " is not 0");
  }
  return absl::OkStatus();
}

// `region`: fixed part and description with the padding up to the trunk.
absl::StatusOr<StoreHeader> DecodeHeader(std::string_view region, uint64_t description_bytes) {
  const uint64_t stored = GetAt<uint64_t>(region, kChecksumAt);
  const uint64_t computed = HeaderChecksum(region, description_bytes);
  if (stored != computed) {
    return InvalidArgument("header checksum is ", absl::Hex(computed, absl::kZeroPad16), ", expected ",
                           absl::Hex(stored, absl::kZeroPad16));
  }
  const auto padding = region.substr(kHeaderBytes + description_bytes);
  if (padding.find_first_not_of('\0') != std::string_view::npos) {
    return InvalidArgument("the padding behind the description is not zero");
  }
  StoreHeader header;
  const std::string_view description = region.substr(kHeaderBytes, description_bytes);
  MOED_RETURN_IF_ERROR(DecodeDescription(description, GetAt<uint32_t>(region, kVersionAt), header));
  header.description.trunk_bytes = GetAt<uint64_t>(region, kTrunkBytesAt);
  MOED_ASSIGN_OR_RETURN(header.layout, FileLayout::Plan(header.description, GetAt<uint64_t>(region, kTokenizerBytesAt)));
  header.checksums[header.layout.TokenizerPiece()] = GetAt<uint64_t>(region, kTokenizerChecksumAt);
  MOED_RETURN_IF_ERROR(CheckFields(region, header));
  header.model_hash = Checksum(description);
  return header;
}

}  // namespace

std::string FirstBytes(const std::string& path) {
  std::string bytes(kStoreMagic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

uint32_t StoreVersion(const StoreDescription& description) {
  if (description.coded()) return kCodedVersion;
  return OneFormatEach(description) ? kOneFormatVersion : kFormatByLayerVersion;
}

uint64_t DescriptionBytes(const StoreDescription& description) {
  const size_t layouts = description.precisions.size() * LayoutsWritten(StoreVersion(description), description.moe_layers.size());
  uint64_t bytes = sizeof(uint32_t) * 5 + description.model_spec.size() + sizeof(int32_t) * description.moe_layers.size() +
                   (16 + PartCount(description) * kSegmentBytes) * layouts;
  for (const TensorInfo& tensor : description.trunk) bytes += kTensorFixedBytes + tensor.name.size();
  return bytes + sizeof(uint64_t) * (description.coded() ? 2 : 1) * PartCount(description) * description.precisions.size() *
                     description.moe_layers.size() * static_cast<uint64_t>(description.experts_per_layer);
}

std::string EncodeHeader(const StoreDescription& description, const FileLayout& layout, const std::vector<uint64_t>& checksums) {
  MOED_CHECK(checksums.size() == layout.piece_count());
  std::string out(kHeaderBytes, '\0');
  std::memcpy(out.data(), kStoreMagic.data(), kStoreMagic.size());
  PutAt<uint32_t>(out, kVersionAt, StoreVersion(description));
  PutAt<uint32_t>(out, kAlignmentAt, kStoreAlignment);
  PutAt<uint64_t>(out, kFileBytesAt, layout.file_bytes());
  PutAt<uint64_t>(out, kDescriptionBytesAt, layout.description_bytes());
  PutAt<uint64_t>(out, kTrunkOffsetAt, layout.trunk_offset());
  PutAt<uint64_t>(out, kTrunkBytesAt, description.trunk_bytes);
  PutAt<uint64_t>(out, kTokenizerOffsetAt, layout.tokenizer_offset());
  PutAt<uint64_t>(out, kTokenizerBytesAt, layout.PieceAt(layout.TokenizerPiece()).bytes);
  PutAt<uint64_t>(out, kTokenizerChecksumAt, checksums[layout.TokenizerPiece()]);
  PutAt<uint64_t>(out, kRecordsOffsetAt, layout.records_offset());
  out += EncodeDescription(description, layout, checksums);
  PutAt<uint64_t>(out, kChecksumAt, HeaderChecksum(out, layout.description_bytes()));
  out.resize(layout.trunk_offset(), '\0');
  return out;
}

absl::StatusOr<StoreHeader> ReadHeader(const RandomAccessFile& file, uint64_t most_description_bytes) {
  if (file.size() < kStoreAlignment) {
    return Damage(file.path(), " is truncated: a store has at least ", kStoreAlignment, " bytes, the file has ", file.size());
  }
  std::string region(kHeaderBytes, '\0');
  MOED_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(region))));
  MOED_RETURN_IF_ERROR(AsDamage(CheckFixedPart(file, region)));
  const uint64_t description_bytes = GetAt<uint64_t>(region, kDescriptionBytesAt);
  if (description_bytes > most_description_bytes) {
    return absl::OutOfRangeError(StrCat(file.path(), ": the description has ", description_bytes, " bytes, at most ",
                                        most_description_bytes, " are read"));
  }
  region.resize(std::min<uint64_t>(RoundUp(kHeaderBytes + description_bytes, kStoreAlignment), file.size()));
  MOED_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(region))));
  absl::StatusOr<StoreHeader> header = DecodeHeader(region, description_bytes);
  if (!header.ok()) return Damage(file.path(), " is damaged: ", header.status().message());
  return header;
}

}  // namespace moed
