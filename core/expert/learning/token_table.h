// What recent tokens were followed by: one value in [0, 1] for every expert of every layer, for the tokens seen last.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/expert_choice.h"
#include "core/base/ids.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/part_context.h"

namespace moed {

// Bounded whatever the vocabulary: a token has a place in one set of eight rows, and takes the row there that was used longest
// ago. Rows are sparse: of each layer the experts that served the token most have an entry, four times as many as serve one
// token. An entry is an average over the token's occurrences, the newer ones weighing more once there were many. Not
// synchronised.
class TokenTable final : private LearnedRows {
 public:
  static constexpr int kNoRow = -1;

  // The value of an expert without an entry: it began at `base` and comes nearer to `rest` with every occurrence. (experts)
  struct Unseen {
    std::span<const float> base;
    std::span<const float> rest;
  };

  // As many rows as fit `max_bytes`, within kMostRows; one set at least. The base weighs as much as `base_weight` occurrences.
  TokenTable(const ExpertModelShape& shape, size_t max_bytes, float base_weight);

  // kNoRow when the token is not there.
  int Find(TokenId token) const;
  int FindOrAdd(TokenId token);
  // How often the row was learned from; confidence grows with it, up to kMostOccurrences.
  int occurrences(int row) const { return std::min(rows_[static_cast<size_t>(row)].occurrences, kMostOccurrences); }
  void CountOccurrence(int row);
  // Of a token that passes this layer: its row comes with the first layer that it passes, and is counted at the last one. Those
  // are an encoder's layers, or the others.
  int FindAt(int position, TokenId token) {
    return position == 0 || position == encoder_positions_ ? FindOrAdd(token) : Find(token);
  }
  void CountAt(int position, int row) {
    if (position + 1 == static_cast<int>(layers_) || position + 1 == encoder_positions_) CountOccurrence(row);
  }

  // Moves a layer's values towards `targets` (experts). Who was chosen and has no entry takes the lowest one.
  void Learn(int row, int position, std::span<const ExpertChoice> chosen, std::span<const float> targets, const Unseen& unseen);
  void Values(int row, int position, const Unseen& unseen, std::span<float> values) const;

  void VisitLearned(LearnedState& state) {
    state.Value(now_, kAnything);
    state.Rows(*this);
  }
  size_t rows() const override { return rows_.size(); }
  size_t memory_bytes() const { return rows_.size() * RowBytes(); }
  static size_t LeastBytes(const ExpertModelShape& shape);  // however few it was given
  static size_t MostBytes(const ExpertModelShape& shape);   // however many

 private:
  static constexpr size_t kWays = 8;
  static constexpr int kMostOccurrences = 16;
  static constexpr int kMostCounted = 64;  // then nothing is left of the base

  struct Row {
    TokenId token{-1};
    int32_t occurrences = 0;
    uint64_t last_use = 0;
  };
  // Of nobody where the value is 0.
  struct Entries {
    std::span<uint16_t> experts;
    std::span<uint8_t> values;  // in 1/255
  };

  size_t RowBytes() const { return sizeof(Row) + layers_ * kept_ * (sizeof(uint16_t) + sizeof(uint8_t)); }
  size_t SetOf(TokenId token) const;
  Row& OldestOf(TokenId token);
  size_t FirstEntry(int row, int position) const {
    return (static_cast<size_t>(row) * layers_ + static_cast<size_t>(position)) * kept_;
  }
  // Of what an occurrence moves a value.
  float Rate(int occurrences) const {
    return 1 / (base_weight_ + 1 + static_cast<float>(std::min(occurrences, kMostOccurrences)));
  }
  float BaseShare(int row) const { return base_shares_[static_cast<size_t>(rows_[static_cast<size_t>(row)].occurrences)]; }
  void Enter(size_t first, int32_t expert, float value);

  // Of a file: the row, then its entries' experts, then their values.
  size_t row_bytes() const override { return RowBytes(); }
  bool Write(size_t row, std::span<std::byte> bytes) const override;
  bool Sane(std::span<const std::byte> bytes) const override;
  void Take(std::span<const std::byte> bytes) override;

  const size_t layers_;
  const int encoder_positions_;
  const size_t experts_;
  const size_t kept_;  // entries of a layer
  const float base_weight_;
  std::array<float, kMostCounted + 1> base_shares_;  // by occurrences: what is left of the base where an expert was never seen
  std::vector<Row> rows_;
  std::vector<uint16_t> entry_experts_;  // (rows, layers, kept)
  std::vector<uint8_t> entry_values_;    // (rows, layers, kept)
  uint64_t now_ = 0;
};

}  // namespace moed
