// What recent tokens were followed by: one value in [0, 1] for every expert of every layer, for the tokens seen last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/expert/learning/learned_state.h"

namespace moed {

// Bounded whatever the vocabulary: a token has a place in one set of eight rows, and takes the row there that was used longest
// ago. A row is an average over the token's occurrences, the newer ones weighing more once there were many. Not synchronised.
class TokenTable {
 public:
  static constexpr int kNoRow = -1;

  // As many rows as fit `max_bytes` and no more than `max_rows`, one set at least. The base of Learn weighs as much as
  // `base_weight` occurrences.
  TokenTable(size_t values, size_t max_bytes, size_t max_rows, float base_weight = 3);

  // kNoRow when the token is not there.
  int Find(TokenId token) const;
  int FindOrAdd(TokenId token);
  // How often the row was learned from; confidence grows with it, up to kMostOccurrences.
  int occurrences(int row) const { return rows_[row].occurrences; }
  void CountOccurrence(int row);

  // Moves the values from `first` on towards `targets`; on the first occurrence, from `base` on the way to them.
  void Learn(int row, size_t first, std::span<const float> targets, std::span<const float> base);
  std::span<const uint8_t> Values(int row, size_t first, size_t count) const {  // in 1/255
    return std::span(values_).subspan(row * values_per_row_ + first, count);
  }

  void VisitLearned(LearnedState& state) {
    state.Values(rows_, [](const Row& row) { return row.occurrences >= 0 && row.occurrences <= kMostOccurrences; });
    state.Values(values_, kAnything);
    state.Value(now_, kAnything);
  }
  size_t memory_bytes() const { return rows_.size() * sizeof(Row) + values_.size(); }
  static size_t LeastBytes(size_t values) { return kWays * (sizeof(Row) + values); }  // however few it was given

 private:
  static constexpr size_t kWays = 8;
  static constexpr int kMostOccurrences = 16;

  struct Row {
    TokenId token{-1};
    uint64_t last_use = 0;
    int occurrences = 0;
  };

  size_t SetOf(TokenId token) const;

  const size_t values_per_row_;
  const float base_weight_;
  std::vector<Row> rows_;
  std::vector<uint8_t> values_;  // (rows, values_per_row)
  uint64_t now_ = 0;
};

}  // namespace moed
