// Where everything lies in a store file. Every offset follows from the formats and shapes, so a file has one legal layout and
// nothing in it can overlap.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/store/description.h"

namespace moed {

inline constexpr uint64_t kHeaderBytes = 128;                   // fixed part, followed by the description
inline constexpr uint64_t kMaxDescriptionBytes = 256ull << 20;  // larger ones are refused before they are read
inline constexpr int kMaxLayers = 1 << 16;
inline constexpr int kMaxExpertsPerLayer = 1 << 16;
inline constexpr int kMaxPrecisions = 16;
inline constexpr int kMaxRowsOrColumns = 1 << 24;
inline constexpr size_t kMaxTensorNameBytes = 256;
inline constexpr uint64_t kMaxTokenizerBytes = 1ull << 30;

// What may be read of a store to open it; OUT_OF_RANGE for one that has more.
struct StoreLimits {
  uint64_t description_bytes = kMaxDescriptionBytes;
  uint64_t tokenizer_bytes = kMaxTokenizerBytes;
};

struct MatrixShape {
  int rows = 0;
  int cols = 0;
};

// By part: gate, up, down. A part without rows is one that the experts do not have; its format says nothing.
using PartShapes = std::array<MatrixShape, kExpertParts>;
using PartFormats = std::array<FormatId, kExpertParts>;
// Those that the experts have, in record order.
std::vector<ExpertPart> PartsOf(const PartShapes& shapes);

ExpertLayout LayOutExpert(const PartFormats& formats, const PartShapes& shapes);
// Every part of every one of `layers` MoE layers in the same format.
ExpertPrecision LayOutExperts(FormatId format, const PartShapes& shapes, size_t layers);

// INVALID_ARGUMENT unless MoE layers and experts are as many as allowed and layers ascend.
absl::Status CheckLayers(const StoreDescription& description);

// Sets offset and bytes of every trunk tensor, in their order, and trunk_bytes.
void LayOutTrunk(StoreDescription& description);

std::string_view PartName(ExpertPart part);  // "gate"

// A stretch of the file with a checksum of its own: a trunk tensor, the tokenizer or a segment of an expert.
struct Piece {
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;   // without padding
};

// The pieces of a store have one numbering: trunk tensors, then the tokenizer, then experts as
// [precision][MoE layer][expert][part], which is also their order in the file; of coded records that is
// [MoE layer][expert][precision][part].
class FileLayout {
  // The records of a layer lie behind each other.
  struct LayerRecords {
    uint64_t first_record = 0;
    uint64_t record_bytes = 0;
    std::array<Piece, kExpertParts> segments;  // as many as parts; offsets from the start of the record
  };

 public:
  static constexpr uint64_t kLayerBytes = sizeof(LayerRecords);  // that it holds of every MoE layer at every precision
  static constexpr uint64_t kCodedSegmentBytes = sizeof(Piece);  // and of every segment where records are coded

  // INVALID_ARGUMENT naming the field for a description that no store may have (order, range, size, offset, duplicate name).
  static absl::StatusOr<FileLayout> Plan(const StoreDescription& description, uint64_t tokenizer_bytes);

  uint64_t description_bytes() const { return description_bytes_; }
  uint64_t trunk_offset() const { return trunk_offset_; }
  uint64_t tokenizer_offset() const { return tokenizer_offset_; }
  uint64_t records_offset() const { return layers_.front().first_record; }
  uint64_t file_bytes() const { return file_bytes_; }

  size_t piece_count() const { return TokenizerPiece() + 1 + expert_piece_count(); }
  size_t expert_piece_count() const { return precisions() * records_per_precision() * parts_.size(); }
  size_t TokenizerPiece() const { return trunk_.size(); }
  size_t TensorPiece(size_t tensor) const { return tensor; }
  // Key valid (Contains), and a part that the experts have.
  size_t ExpertPiece(const CachedKey& key, ExpertPart part) const;
  Piece PieceAt(size_t index) const;
  // Bytes that a piece has in memory: those in the file, but for coded segments.
  uint64_t PlainBytes(size_t index) const;
  // The piece that is `rank`th in the file.
  size_t PieceOfRank(size_t rank) const;
  size_t RankOf(size_t piece) const;

  bool coded() const { return !coded_.empty(); }
  // Of coded records, in the order of their ranks: the segment has so many bytes in the file, and the next follows.
  void PlaceCoded(size_t piece, uint64_t bytes);

  bool Contains(const CachedKey& key) const;
  // Of a MoE layer among them.
  size_t PositionOf(LayerId layer) const;
  // Key valid. Offset in the file, multiple of 4096.
  uint64_t RecordOffset(const CachedKey& key) const;
  // Key valid. Where a record's segments from `first` to before `end`, in record order, are in the file: whole pages.
  Piece RangeOf(const CachedKey& key, size_t first, size_t end) const;
  // Inverse of ExpertPiece; `expert_piece` counts from the first expert's.
  std::pair<CachedKey, ExpertPart> ExpertAt(size_t expert_piece) const;

 private:
  size_t precisions() const { return layers_.size() / moe_layers_.size(); }
  const LayerRecords& LayerOf(const CachedKey& key) const {
    return layers_[key.precision * moe_layers_.size() + PositionOf(key.layer)];
  }
  size_t records_per_precision() const { return moe_layers_.size() * static_cast<size_t>(experts_per_layer_); }
  size_t RecordIndex(const CachedKey& key) const;
  absl::Status PlaceRecords(const StoreDescription& description, uint64_t first_record);
  absl::Status PlaceAllCoded(const StoreDescription& description);

  std::vector<LayerId> moe_layers_;
  std::vector<int32_t> moe_index_;  // layer -> index into moe_layers_, -1 for dense
  int experts_per_layer_ = 0;
  std::vector<ExpertPart> parts_;     // in record order
  std::vector<LayerRecords> layers_;  // [precision][MoE layer], in the order of the file
  std::vector<Piece> trunk_;          // offsets from the start of the file
  std::vector<Piece> coded_;          // by expert piece, likewise; empty where records are not coded
  uint64_t coded_end_ = 0;            // of what is placed, whole pages
  uint64_t description_bytes_ = 0;
  uint64_t trunk_offset_ = 0;
  uint64_t tokenizer_offset_ = 0;
  uint64_t tokenizer_bytes_ = 0;
  uint64_t file_bytes_ = 0;
};

// How many parts an expert has. The description has a precision with a layer.
size_t PartCount(const StoreDescription& description);

// Size of the description as header.h encodes it; it follows from the counts.
uint64_t DescriptionBytes(const StoreDescription& description);

// Says of a description whose precisions are there that its records are coded, each segment as large as it can become.
void MarkCoded(StoreDescription& description);
// Bytes of all experts' records in the file at a precision, as a share of those in memory.
double StoredShare(const StoreDescription& description, Precision precision);

// Whether every layer and part has the same format.
bool OneFormat(const ExpertPrecision& precision);
// Of all precisions. A description that is not so has a version of its own.
bool OneFormatEach(const StoreDescription& description);
// The name of the format that all experts have; of several, in the order of their numbers, "q4+q8".
std::string PrecisionName(const ExpertPrecision& precision);

uint64_t LargestRecordBytes(const ExpertPrecision& precision);
uint64_t LargestRecordBytes(const StoreDescription& description);
// The records of all experts.
uint64_t AllRecordBytes(const StoreDescription& description, Precision precision);

}  // namespace moed
