#include "core/expert/learning/token_table.h"

#include <algorithm>

#include "core/base/check.h"

namespace moed {

TokenTable::TokenTable(size_t values, size_t max_bytes, size_t max_rows, float base_weight)
    : values_per_row_(values), base_weight_(base_weight) {
  const size_t rows = std::min(max_bytes / (values + sizeof(Row)), max_rows);
  const size_t sets = std::max<size_t>(1, rows / kWays);
  rows_.resize(sets * kWays);
  values_.resize(rows_.size() * values_per_row_);
}

size_t TokenTable::SetOf(TokenId token) const {
  const uint64_t mixed = static_cast<uint64_t>(static_cast<uint32_t>(token.value())) * 0x9E3779B97F4A7C15u;
  return (mixed >> 32) % (rows_.size() / kWays) * kWays;
}

int TokenTable::Find(TokenId token) const {
  const size_t first = SetOf(token);
  for (size_t row = first; row < first + kWays; ++row) {
    if (rows_[row].token == token) return static_cast<int>(row);
  }
  return kNoRow;
}

int TokenTable::FindOrAdd(TokenId token) {
  MOED_CHECK(token.value() >= 0);
  int row = Find(token);
  if (row == kNoRow) {
    const auto first = rows_.begin() + static_cast<std::ptrdiff_t>(SetOf(token));
    const auto oldest =
        std::min_element(first, first + kWays, [](const Row& a, const Row& b) { return a.last_use < b.last_use; });
    *oldest = {.token = token};
    row = static_cast<int>(oldest - rows_.begin());
    std::fill_n(values_.begin() + static_cast<std::ptrdiff_t>(row * values_per_row_), values_per_row_, 0);
  }
  rows_[row].last_use = ++now_;
  return row;
}

void TokenTable::CountOccurrence(int row) { rows_[row].occurrences = std::min(rows_[row].occurrences + 1, kMostOccurrences); }

void TokenTable::Learn(int row, size_t first, std::span<const float> targets, std::span<const float> base) {
  MOED_CHECK(first + targets.size() <= values_per_row_ && base.size() == targets.size());
  const int before = rows_[row].occurrences;
  const float rate = 1 / (base_weight_ + 1 + static_cast<float>(before));
  uint8_t* values = &values_[row * values_per_row_ + first];
  for (size_t i = 0; i < targets.size(); ++i) {
    const float old = before == 0 ? base[i] : static_cast<float>(values[i]) * (1 / 255.f);
    const float value = old + (targets[i] - old) * rate;
    values[i] = static_cast<uint8_t>(std::clamp(value, 0.f, 1.f) * 255 + 0.5f);
  }
}

}  // namespace moed
