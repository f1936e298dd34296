// Pieces and merges, read in place from a compiled tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/tokenizer/blob.h"

namespace moed {

struct Merge {
  uint32_t rank;  // lower merges first
  uint32_t id;    // of the piece that it gives
};

struct MergeRule {
  uint32_t left, right, id;
};

// Views into a blob, which must outlive it. Thread-safe.
class Vocabulary {
 public:
  // DATA_LOSS when an offset, an id or a table is out of bounds.
  static absl::StatusOr<Vocabulary> Open(const PerBlobSection<std::string_view>& sections);

  size_t size() const { return offsets_.size() - 1; }  // highest id + 1
  // Bytes as they enter a text for byte-level vocabularies, as spelled in tokenizer.json for others. Empty for an unused id.
  std::string_view piece(uint32_t id) const { return bytes_.substr(offsets_[id], offsets_[id + 1] - offsets_[id]); }
  // Only pieces that BPE looks up by their bytes are found.
  std::optional<uint32_t> Find(std::string_view bytes) const;
  std::optional<Merge> FindMerge(uint32_t left, uint32_t right) const;

 private:
  U32Array offsets_;
  std::string_view bytes_;
  U32Array piece_slots_;
  U32Array merge_slots_;
  U32Array merge_results_;
};

// Fills the four vocabulary sections. `found` are the ids that Find finds; of two merges of one pair the last counts.
void BuildVocabulary(const std::vector<std::string>& pieces, const std::vector<uint32_t>& found,
                     const std::vector<MergeRule>& merges, PerBlobSection<std::string>& sections);

}  // namespace moed
