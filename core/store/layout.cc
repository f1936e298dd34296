#include "core/store/layout.h"

#include <algorithm>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr std::string_view kPartNames[kExpertParts] = {"gate", "up", "down"};
constexpr uint64_t kMaxFileBytes = 1ull << 62;

absl::Status CheckRange(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument(field, " is ", value, ", expected ", low, "..", high);
}

absl::Status CheckEqual(std::string_view field, uint64_t found, uint64_t expected) {
  if (found == expected) return absl::OkStatus();
  return InvalidArgument(field, " is ", found, ", expected ", expected);
}

absl::Status CheckFormat(std::string_view what, FormatId format) {
  if (static_cast<size_t>(format) < Formats().size()) return absl::OkStatus();
  return InvalidArgument(what, " has format number ", static_cast<int>(format), ", expected one of ",
                         JoinNames(Formats(), [](const Format& f) { return StrCat(static_cast<int>(f.id), " (", f.name, ")"); }));
}

absl::Status CheckShape(std::string_view what, FormatId format, int rows, int cols) {
  MOED_RETURN_IF_ERROR(CheckRange(StrCat(what, ": rows"), rows, 1, kMaxRowsOrColumns));
  MOED_RETURN_IF_ERROR(CheckRange(StrCat(what, ": columns"), cols, 1, kMaxRowsOrColumns));
  if (FitsColumns(format, cols)) return absl::OkStatus();
  return InvalidArgument(what, " has ", cols, " columns, expected a multiple of ", FormatOf(format).block_columns, " in ",
                         FormatOf(format).name);
}

absl::Status CheckParts(const std::string& what, const ExpertLayout& layout) {
  const size_t parts = layout.segments.size();
  MOED_RETURN_IF_ERROR(
      CheckRange(StrCat(what, ": number of segments"), static_cast<int64_t>(parts), kLeastExpertParts, kExpertParts));
  for (size_t i = 0; i < parts; ++i) {
    const auto part = static_cast<uint64_t>(layout.segments[i].part);
    MOED_RETURN_IF_ERROR(CheckEqual(StrCat(what, ": part of segment ", i), part, kExpertParts - parts + i));
  }
  return absl::OkStatus();
}

// `reference`: of the first MoE layer at the reference precision, which has the same parts.
absl::Status CheckExpertLayout(const ExpertLayout& layout, const ExpertLayout& reference, const std::string& what) {
  PartShapes shapes;
  PartFormats formats{};
  MOED_RETURN_IF_ERROR(CheckParts(what, layout));
  MOED_RETURN_IF_ERROR(CheckEqual(StrCat(what, ": number of segments"), layout.segments.size(), reference.segments.size()));
  for (size_t i = 0; i < layout.segments.size(); ++i) {
    const ExpertSegment& segment = layout.segments[i];
    const std::string part = StrCat(what, " ", PartName(segment.part));
    MOED_RETURN_IF_ERROR(CheckFormat(part, segment.format));
    MOED_RETURN_IF_ERROR(CheckShape(part, segment.format, segment.rows, segment.cols));
    formats[static_cast<size_t>(segment.part)] = segment.format;
    shapes[static_cast<size_t>(segment.part)] = {segment.rows, segment.cols};
    const ExpertSegment& first = reference.segments[i];
    if (segment.rows != first.rows || segment.cols != first.cols) {
      return InvalidArgument(part, " is (", segment.rows, ", ", segment.cols, "), expected (", first.rows, ", ", first.cols,
                             ") as at the reference precision");
    }
  }
  const ExpertLayout expected = LayOutExpert(formats, shapes);
  for (size_t i = 0; i < layout.segments.size(); ++i) {
    const std::string part = StrCat(what, " ", PartName(layout.segments[i].part));
    MOED_RETURN_IF_ERROR(CheckEqual(StrCat(part, ": offset"), layout.segments[i].offset, expected.segments[i].offset));
    MOED_RETURN_IF_ERROR(CheckEqual(StrCat(part, ": bytes"), layout.segments[i].bytes, expected.segments[i].bytes));
  }
  return CheckEqual(StrCat(what, ": record bytes"), layout.record_bytes, expected.record_bytes);
}

absl::Status CheckPrecision(const StoreDescription& description, size_t precision) {
  const std::vector<ExpertLayout>& layers = description.precisions[precision].layers;
  const std::string what = StrCat("expert precision ", precision);
  MOED_RETURN_IF_ERROR(CheckEqual(StrCat(what, ": number of layouts"), layers.size(), description.moe_layers.size()));
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string in_layer = StrCat(what, ", layer ", description.moe_layers[i].value());
    MOED_RETURN_IF_ERROR(CheckExpertLayout(layers[i], description.precisions[0].layers[0], in_layer));
  }
  return absl::OkStatus();
}

absl::Status CheckTrunk(const StoreDescription& description) {
  absl::flat_hash_set<std::string> names;
  StoreDescription expected;
  expected.trunk = description.trunk;
  uint64_t total = 0;
  for (const TensorInfo& tensor : description.trunk) {
    MOED_RETURN_IF_ERROR(CheckRange("bytes of a trunk tensor's name", static_cast<int64_t>(tensor.name.size()), 1,
                                    static_cast<int64_t>(kMaxTensorNameBytes)));
    const std::string what = StrCat("trunk tensor \"", tensor.name, "\"");
    if (!names.insert(tensor.name).second) return InvalidArgument(what, " appears twice");
    MOED_RETURN_IF_ERROR(CheckFormat(what, tensor.format));
    MOED_RETURN_IF_ERROR(CheckShape(what, tensor.format, tensor.rows, tensor.cols));
    if (tensor.vector && (tensor.rows != 1 || tensor.format != FormatId::kF32)) {
      return InvalidArgument(what, " is a vector with ", tensor.rows, " rows in format ", FormatOf(tensor.format).name,
                             ", expected 1 row in f32");
    }
    total += kStoreAlignment + PackedBytes(tensor.format, tensor.rows, tensor.cols);  // at most 2^51 each
    if (total > kMaxFileBytes) return InvalidArgument("the trunk would be larger than ", kMaxFileBytes, " bytes");
  }
  LayOutTrunk(expected);
  for (size_t i = 0; i < description.trunk.size(); ++i) {
    const std::string what = StrCat("trunk tensor \"", description.trunk[i].name, "\"");
    MOED_RETURN_IF_ERROR(CheckEqual(StrCat(what, ": offset"), description.trunk[i].offset, expected.trunk[i].offset));
    MOED_RETURN_IF_ERROR(CheckEqual(StrCat(what, ": bytes"), description.trunk[i].bytes, expected.trunk[i].bytes));
  }
  return CheckEqual("trunk bytes", description.trunk_bytes, expected.trunk_bytes);
}

std::set<FormatId> FormatsOf(const ExpertPrecision& precision) {
  std::set<FormatId> formats;
  for (const ExpertLayout& layout : precision.layers) {
    for (const ExpertSegment& segment : layout.segments) formats.insert(segment.format);
  }
  return formats;
}

absl::Status CheckDescription(const StoreDescription& description) {
  MOED_RETURN_IF_ERROR(CheckLayers(description));
  MOED_RETURN_IF_ERROR(
      CheckRange("number of expert precisions", static_cast<int64_t>(description.precisions.size()), 1, kMaxPrecisions));
  for (size_t p = 0; p < description.precisions.size(); ++p) MOED_RETURN_IF_ERROR(CheckPrecision(description, p));
  return CheckTrunk(description);
}

}  // namespace

std::string_view PartName(ExpertPart part) { return kPartNames[static_cast<size_t>(part)]; }

absl::Status CheckLayers(const StoreDescription& description) {
  MOED_RETURN_IF_ERROR(CheckRange("number of MoE layers", static_cast<int64_t>(description.moe_layers.size()), 1, kMaxLayers));
  MOED_RETURN_IF_ERROR(CheckRange("experts per layer", description.experts_per_layer, 1, kMaxExpertsPerLayer));
  int previous = -1;
  for (const LayerId layer : description.moe_layers) {
    if (layer.value() <= previous) {
      return InvalidArgument("MoE layers are not ascending: ", layer.value(), " follows ", previous);
    }
    MOED_RETURN_IF_ERROR(CheckRange("MoE layer", layer.value(), 0, kMaxLayers - 1));
    previous = layer.value();
  }
  return absl::OkStatus();
}

std::vector<ExpertPart> PartsOf(const PartShapes& shapes) {
  std::vector<ExpertPart> parts;
  for (int p = 0; p < kExpertParts; ++p) {
    if (shapes[p].rows > 0) parts.push_back(static_cast<ExpertPart>(p));
  }
  return parts;
}

ExpertLayout LayOutExpert(const PartFormats& formats, const PartShapes& shapes) {
  ExpertLayout layout;
  for (const ExpertPart part : PartsOf(shapes)) {
    const auto [rows, cols] = shapes[static_cast<size_t>(part)];
    const FormatId format = formats[static_cast<size_t>(part)];
    const uint64_t bytes = PackedBytes(format, rows, cols);
    layout.segments.push_back({part, format, rows, cols, layout.record_bytes, bytes});
    layout.record_bytes += RoundUp(bytes, kStoreAlignment);
  }
  return layout;
}

ExpertPrecision LayOutExperts(FormatId format, const PartShapes& shapes, size_t layers) {
  return {std::vector(layers, LayOutExpert({format, format, format}, shapes))};
}

void LayOutTrunk(StoreDescription& description) {
  uint64_t end = 0;
  for (TensorInfo& tensor : description.trunk) {
    tensor.offset = RoundUp(end, kTensorAlignment);
    tensor.bytes =
        tensor.vector ? sizeof(float) * static_cast<uint64_t>(tensor.cols) : PackedBytes(tensor.format, tensor.rows, tensor.cols);
    end = tensor.offset + tensor.bytes;
  }
  description.trunk_bytes = RoundUp(end, kStoreAlignment);
}

absl::StatusOr<FileLayout> FileLayout::Plan(const StoreDescription& description, uint64_t tokenizer_bytes) {
  MOED_RETURN_IF_ERROR(CheckDescription(description));
  FileLayout layout;
  layout.description_bytes_ = DescriptionBytes(description);
  if (layout.description_bytes_ > kMaxDescriptionBytes) {
    return InvalidArgument("the description has ", layout.description_bytes_, " bytes, at most ", kMaxDescriptionBytes,
                           " are allowed");
  }
  if (tokenizer_bytes > kMaxTokenizerBytes) {
    return InvalidArgument("the tokenizer has ", tokenizer_bytes, " bytes, at most ", kMaxTokenizerBytes, " are allowed");
  }
  layout.moe_layers_ = description.moe_layers;
  layout.moe_index_.assign(static_cast<size_t>(description.moe_layers.back().value()) + 1, -1);
  for (size_t i = 0; i < description.moe_layers.size(); ++i) {
    layout.moe_index_[description.moe_layers[i].value()] = static_cast<int32_t>(i);
  }
  layout.experts_per_layer_ = description.experts_per_layer;
  for (const ExpertSegment& segment : description.precisions[0].layers[0].segments) layout.parts_.push_back(segment.part);
  layout.tokenizer_bytes_ = tokenizer_bytes;
  layout.trunk_offset_ = RoundUp(kHeaderBytes + layout.description_bytes_, kStoreAlignment);
  for (const TensorInfo& tensor : description.trunk) {
    layout.trunk_.push_back({layout.trunk_offset_ + tensor.offset, tensor.bytes});
  }
  layout.tokenizer_offset_ = layout.trunk_offset_ + description.trunk_bytes;
  MOED_RETURN_IF_ERROR(layout.PlaceRecords(description, RoundUp(layout.tokenizer_offset_ + tokenizer_bytes, kStoreAlignment)));
  return layout;
}

absl::Status FileLayout::PlaceRecords(const StoreDescription& description, uint64_t first_record) {
  unsigned __int128 end = first_record;  // cannot overflow: 2^16 layers x 2^16 experts x 2^53 bytes x 16 precisions
  layers_.reserve(description.precisions.size() * moe_layers_.size());
  for (const ExpertPrecision& precision : description.precisions) {
    for (const ExpertLayout& layout : precision.layers) {
      LayerRecords& placed = layers_.emplace_back();
      placed.first_record = static_cast<uint64_t>(end);
      placed.record_bytes = layout.record_bytes;
      for (size_t i = 0; i < parts_.size(); ++i) placed.segments[i] = {layout.segments[i].offset, layout.segments[i].bytes};
      end += static_cast<unsigned __int128>(layout.record_bytes) * static_cast<unsigned>(experts_per_layer_);
      if (end > kMaxFileBytes) return InvalidArgument("the store would be larger than ", kMaxFileBytes, " bytes");
    }
  }
  file_bytes_ = static_cast<uint64_t>(end);
  return description.coded() ? PlaceAllCoded(description) : absl::OkStatus();
}

absl::Status FileLayout::PlaceAllCoded(const StoreDescription& description) {
  MOED_RETURN_IF_ERROR(CheckEqual("number of coded segments", description.coded_bytes.size(), expert_piece_count()));
  coded_.resize(expert_piece_count());
  coded_end_ = records_offset();
  for (size_t rank = TokenizerPiece() + 1; rank < piece_count(); ++rank) {
    const size_t piece = PieceOfRank(rank);
    const uint64_t bytes = description.coded_bytes[piece - TokenizerPiece() - 1], most = PlainBytes(piece);
    if (bytes < 1 || bytes > most) return InvalidArgument("a coded segment has ", bytes, " bytes, expected 1..", most);
    PlaceCoded(piece, bytes);
  }
  file_bytes_ = coded_end_;
  return absl::OkStatus();
}

void FileLayout::PlaceCoded(size_t piece, uint64_t bytes) {
  const size_t expert_piece = piece - TokenizerPiece() - 1;
  if (expert_piece == 0) coded_end_ = records_offset();
  coded_[expert_piece] = {coded_end_, bytes};
  coded_end_ += RoundUp(bytes, kStoreAlignment);
}

bool FileLayout::Contains(const CachedKey& key) const {
  const int32_t layer = key.layer.value();
  return layer >= 0 && static_cast<size_t>(layer) < moe_index_.size() && moe_index_[layer] >= 0 && key.expert >= 0 &&
         key.expert < experts_per_layer_ && key.precision < precisions();
}

size_t FileLayout::PositionOf(LayerId layer) const { return static_cast<size_t>(moe_index_[layer.value()]); }

size_t FileLayout::RecordIndex(const CachedKey& key) const {
  MOED_CHECK(Contains(key));
  return PositionOf(key.layer) * experts_per_layer_ + key.expert;
}

uint64_t FileLayout::RecordOffset(const CachedKey& key) const {
  MOED_CHECK(Contains(key));
  if (coded()) return PieceAt(ExpertPiece(key, parts_.front())).offset;
  const LayerRecords& layer = LayerOf(key);
  return layer.first_record + layer.record_bytes * static_cast<uint64_t>(key.expert);
}

size_t FileLayout::ExpertPiece(const CachedKey& key, ExpertPart part) const {
  const size_t record = key.precision * records_per_precision() + RecordIndex(key);
  const auto place = std::find(parts_.begin(), parts_.end(), part);
  MOED_CHECK(place != parts_.end());
  return TokenizerPiece() + 1 + record * parts_.size() + static_cast<size_t>(place - parts_.begin());
}

std::pair<CachedKey, ExpertPart> FileLayout::ExpertAt(size_t expert_piece) const {
  MOED_CHECK(expert_piece < expert_piece_count());
  const size_t record = expert_piece / parts_.size();
  const size_t in_precision = record % records_per_precision();
  const CachedKey key{moe_layers_[in_precision / experts_per_layer_], static_cast<int32_t>(in_precision % experts_per_layer_),
                      static_cast<Precision>(record / records_per_precision())};
  return {key, parts_[expert_piece % parts_.size()]};
}

Piece FileLayout::PieceAt(size_t index) const {
  MOED_CHECK(index < piece_count());
  if (index < trunk_.size()) return trunk_[index];
  if (index == TokenizerPiece()) return {tokenizer_offset_, tokenizer_bytes_};
  const size_t expert_piece = index - TokenizerPiece() - 1;
  if (coded()) return coded_[expert_piece];
  const CachedKey key = ExpertAt(expert_piece).first;
  const Piece& segment = LayerOf(key).segments[expert_piece % parts_.size()];
  return {RecordOffset(key) + segment.offset, segment.bytes};
}

uint64_t FileLayout::PlainBytes(size_t index) const {
  if (index <= TokenizerPiece()) return PieceAt(index).bytes;
  const size_t expert_piece = index - TokenizerPiece() - 1;
  return LayerOf(ExpertAt(expert_piece).first).segments[expert_piece % parts_.size()].bytes;
}

size_t FileLayout::PieceOfRank(size_t rank) const {
  if (!coded() || rank <= TokenizerPiece()) return rank;
  const size_t expert_rank = rank - TokenizerPiece() - 1, part = expert_rank % parts_.size();
  const size_t record = expert_rank / parts_.size() / precisions(), precision = expert_rank / parts_.size() % precisions();
  return TokenizerPiece() + 1 + (precision * records_per_precision() + record) * parts_.size() + part;
}

size_t FileLayout::RankOf(size_t piece) const {
  if (!coded() || piece <= TokenizerPiece()) return piece;
  const size_t expert_piece = piece - TokenizerPiece() - 1, part = expert_piece % parts_.size();
  const size_t precision = expert_piece / parts_.size() / records_per_precision();
  const size_t record = expert_piece / parts_.size() % records_per_precision();
  return TokenizerPiece() + 1 + (record * precisions() + precision) * parts_.size() + part;
}

Piece FileLayout::RangeOf(const CachedKey& key, size_t first, size_t end) const {
  const Piece begins = PieceAt(ExpertPiece(key, parts_[first])), ends = PieceAt(ExpertPiece(key, parts_[end - 1]));
  return {begins.offset, RoundUp(ends.offset + ends.bytes, kStoreAlignment) - begins.offset};
}

void MarkCoded(StoreDescription& description) {
  description.coded_bytes.clear();
  for (const ExpertPrecision& precision : description.precisions) {
    for (const ExpertLayout& layout : precision.layers) {
      for (int expert = 0; expert < description.experts_per_layer; ++expert) {
        for (const ExpertSegment& segment : layout.segments) description.coded_bytes.push_back(segment.bytes);
      }
    }
  }
}

double StoredShare(const StoreDescription& description, Precision precision) {
  if (!description.coded()) return 1;
  const size_t of_each = description.coded_bytes.size() / description.precisions.size();
  uint64_t pages = 0;
  for (const uint64_t bytes : std::span(description.coded_bytes).subspan(precision * of_each, of_each)) {
    pages += RoundUp(bytes, kStoreAlignment);
  }
  return static_cast<double>(pages) / static_cast<double>(AllRecordBytes(description, precision));
}

size_t PartCount(const StoreDescription& description) { return description.precisions[0].layers[0].segments.size(); }

bool OneFormat(const ExpertPrecision& precision) { return FormatsOf(precision).size() == 1; }

bool OneFormatEach(const StoreDescription& description) { return std::ranges::all_of(description.precisions, OneFormat); }

std::string PrecisionName(const ExpertPrecision& precision) {
  std::string name;
  for (const FormatId format : FormatsOf(precision)) name += StrCat(name.empty() ? "" : "+", FormatOf(format).name);
  return name;
}

uint64_t LargestRecordBytes(const ExpertPrecision& precision) {
  uint64_t largest = 0;
  for (const ExpertLayout& layout : precision.layers) largest = std::max(largest, layout.record_bytes);
  return largest;
}

uint64_t LargestRecordBytes(const StoreDescription& description) {
  uint64_t largest = 0;
  for (const ExpertPrecision& precision : description.precisions) largest = std::max(largest, LargestRecordBytes(precision));
  return largest;
}

uint64_t AllRecordBytes(const StoreDescription& description, Precision precision) {
  uint64_t sum = 0;
  for (const ExpertLayout& layout : description.precisions[precision].layers) sum += layout.record_bytes;
  return sum * static_cast<uint64_t>(description.experts_per_layer);
}

}  // namespace moed
