#include "core/expert/learning/path_table.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {

PathTable::PathTable(int experts, size_t max_bytes) : stride_(static_cast<size_t>(experts) + 1) {
  MOED_CHECK(experts > 0);
  const size_t sets = std::max<size_t>(1, max_bytes / RowBytes(experts) / kWays);
  keys_.resize(sets * kWays);
  counts_.resize(keys_.size() * stride_);
}

int PathTable::Find(uint64_t key) const {
  const size_t first = FirstOfSet(key);
  for (size_t row = first; row < first + kWays; ++row) {
    if (keys_[row] == key) return static_cast<int>(row);
  }
  return kNoRow;
}

void PathTable::Count(uint64_t key, std::span<const int32_t> chosen) {
  MOED_CHECK(key != 0);
  int row = Find(key);
  if (row == kNoRow) {
    const int first = static_cast<int>(FirstOfSet(key));
    row = first;
    for (int other = first; other < first + static_cast<int>(kWays); ++other) {
      if (occurrences(other) < occurrences(row)) row = other;
      if (occurrences(row) == 0) break;
    }
    keys_[static_cast<size_t>(row)] = key;
    std::fill_n(&counts_[Begin(row)], stride_, 0);
  }
  uint16_t* counts = &counts_[Begin(row)];
  if (counts[0] == kMostOccurrences) {
    for (size_t i = 0; i < stride_; ++i) counts[i] /= 2;
  }
  ++counts[0];
  for (const int32_t expert : chosen) ++counts[1 + static_cast<size_t>(expert)];
}

absl::Status PathTable::Check() const {
  for (size_t row = 0; row < keys_.size(); ++row) {
    const std::span<const uint16_t> counts = this->counts(static_cast<int>(row));
    const uint32_t seen = occurrences(static_cast<int>(row));
    if (seen > kMostOccurrences || (seen > 0) != (keys_[row] != 0) || std::ranges::max(counts) > seen) {
      return DataLoss("row ", row, " says ", seen, " occurrences and up to ", std::ranges::max(counts), " uses of an expert");
    }
  }
  return absl::OkStatus();
}

}  // namespace moed
