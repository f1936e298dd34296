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

struct MatrixShape {
  int rows = 0;
  int cols = 0;
};

// `shapes` in record order: gate, up, down.
ExpertLayout LayOutExpert(FormatId format, const std::array<MatrixShape, kExpertParts>& shapes);

// Sets offset and bytes of every trunk tensor, in their order, and trunk_bytes.
void LayOutTrunk(StoreDescription& description);

std::string_view PartName(ExpertPart part);  // "gate"

// A stretch of the file with a checksum of its own: a trunk tensor, the tokenizer or a segment of an expert.
struct Piece {
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;   // without padding
};

// The pieces of a store have one numbering: trunk tensors, then the tokenizer, then experts as
// [precision][MoE layer][expert][part], which is also their order in the file.
class FileLayout {
 public:
  // INVALID_ARGUMENT naming the field for a description that no store may have (order, range, size, offset, duplicate name).
  static absl::StatusOr<FileLayout> Plan(const StoreDescription& description, uint64_t tokenizer_bytes);

  uint64_t description_bytes() const { return description_bytes_; }
  uint64_t trunk_offset() const { return trunk_offset_; }
  uint64_t tokenizer_offset() const { return tokenizer_offset_; }
  uint64_t records_offset() const { return precisions_.front().first_record; }
  uint64_t file_bytes() const { return file_bytes_; }

  size_t piece_count() const { return TokenizerPiece() + 1 + expert_piece_count(); }
  size_t expert_piece_count() const { return precisions_.size() * records_per_precision() * kExpertParts; }
  size_t TokenizerPiece() const { return trunk_.size(); }
  size_t TensorPiece(size_t tensor) const { return tensor; }
  // Key valid (Contains).
  size_t ExpertPiece(const CachedKey& key, ExpertPart part) const;
  Piece PieceAt(size_t index) const;

  bool Contains(const CachedKey& key) const;
  // Key valid. Offset in the file, multiple of 4096.
  uint64_t RecordOffset(const CachedKey& key) const;
  // Inverse of ExpertPiece; `expert_piece` counts from the first expert's.
  std::pair<CachedKey, ExpertPart> ExpertAt(size_t expert_piece) const;

 private:
  struct PrecisionLayout {
    uint64_t first_record = 0;
    uint64_t record_bytes = 0;
    std::array<Piece, kExpertParts> segments;  // offsets from the start of the record
  };

  size_t records_per_precision() const { return moe_layers_.size() * static_cast<size_t>(experts_per_layer_); }
  size_t RecordIndex(const CachedKey& key) const;
  absl::Status PlaceRecords(const StoreDescription& description, uint64_t first_record);

  std::vector<LayerId> moe_layers_;
  std::vector<int32_t> moe_index_;  // layer -> index into moe_layers_, -1 for dense
  int experts_per_layer_ = 0;
  std::vector<PrecisionLayout> precisions_;
  std::vector<Piece> trunk_;  // offsets from the start of the file
  uint64_t description_bytes_ = 0;
  uint64_t trunk_offset_ = 0;
  uint64_t tokenizer_offset_ = 0;
  uint64_t tokenizer_bytes_ = 0;
  uint64_t file_bytes_ = 0;
};

// Size of the description as header.h encodes it; it follows from the counts.
uint64_t DescriptionBytes(const StoreDescription& description);

// Of one expert, over all precisions.
uint64_t LargestRecordBytes(const StoreDescription& description);

}  // namespace moed
