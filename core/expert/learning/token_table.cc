#include "core/expert/learning/token_table.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"

namespace moed {
namespace {

constexpr size_t kKeptOfOne = 4;                   // entries of a layer for each expert that serves a token in it
constexpr size_t kMostRows = 1 << 12;              // more of them were of no use (docs/lab-log.md)
constexpr uint64_t kMostUses = uint64_t{1} << 62;  // nobody counts so far

size_t KeptOf(const ExpertModelShape& shape) {
  const auto experts = static_cast<size_t>(shape.experts_per_layer);
  return std::min(experts, kKeptOfOne * static_cast<size_t>(std::max(1, shape.top_k)));
}
uint8_t Rounded(float value) { return static_cast<uint8_t>(std::clamp(value * 255 + 0.5f, 1.f, 255.f)); }
float ValueOf(uint8_t entry) { return static_cast<float>(entry) * (1 / 255.f); }

}  // namespace

TokenTable::TokenTable(const ExpertModelShape& shape, size_t max_bytes, float base_weight)
    : layers_(shape.moe_layers.size()),
      encoder_positions_(shape.encoder_positions()),
      experts_(static_cast<size_t>(shape.experts_per_layer)),
      kept_(KeptOf(shape)),
      base_weight_(base_weight) {
  base_shares_[0] = 1;
  for (int i = 0; i < kMostCounted; ++i)
    base_shares_[static_cast<size_t>(i) + 1] = base_shares_[static_cast<size_t>(i)] * (1 - Rate(i));
  const size_t sets = std::max<size_t>(1, std::min(max_bytes / RowBytes(), kMostRows) / kWays);
  rows_.resize(sets * kWays);
  entry_experts_.resize(rows_.size() * layers_ * kept_);
  entry_values_.resize(entry_experts_.size());
}

size_t TokenTable::LeastBytes(const ExpertModelShape& shape) { return TokenTable(shape, 0, 1).memory_bytes(); }

size_t TokenTable::MostBytes(const ExpertModelShape& shape) { return LeastBytes(shape) / kWays * kMostRows; }

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

TokenTable::Row& TokenTable::OldestOf(TokenId token) {
  const auto first = rows_.begin() + static_cast<std::ptrdiff_t>(SetOf(token));
  return *std::min_element(first, first + kWays, [](const Row& a, const Row& b) { return a.last_use < b.last_use; });
}

int TokenTable::FindOrAdd(TokenId token) {
  MOED_CHECK(token.value() >= 0);
  int row = Find(token);
  if (row == kNoRow) {
    Row& oldest = OldestOf(token);
    oldest = {.token = token};
    row = static_cast<int>(&oldest - rows_.data());
    std::fill_n(entry_values_.begin() + static_cast<std::ptrdiff_t>(FirstEntry(row, 0)), layers_ * kept_, 0);
  }
  rows_[static_cast<size_t>(row)].last_use = ++now_;
  return row;
}

void TokenTable::CountOccurrence(int row) {
  int32_t& occurrences = rows_[static_cast<size_t>(row)].occurrences;
  occurrences = std::min(occurrences + 1, kMostCounted);
}

void TokenTable::Learn(int row, int position, std::span<const ExpertChoice> chosen, std::span<const float> targets,
                       const Unseen& unseen) {
  MOED_CHECK(targets.size() == experts_ && unseen.base.size() == experts_ && unseen.rest.size() == experts_);
  const float rate = Rate(occurrences(row));
  const float share = BaseShare(row);
  const size_t first = FirstEntry(row, position);
  for (size_t i = first; i < first + kept_; ++i) {
    if (entry_values_[i] == 0) continue;
    const float old = ValueOf(entry_values_[i]);
    entry_values_[i] = Rounded(old + (targets[entry_experts_[i]] - old) * rate);
  }
  for (const ExpertChoice& choice : chosen) {
    const auto e = static_cast<size_t>(choice.expert);
    const float old = unseen.rest[e] + (unseen.base[e] - unseen.rest[e]) * share;
    Enter(first, choice.expert, old + (targets[e] - old) * rate);
  }
}

// Unless it is there, or everyone there has a higher value.
void TokenTable::Enter(size_t first, int32_t expert, float value) {
  size_t lowest = first;
  for (size_t i = first; i < first + kept_; ++i) {
    if (entry_values_[i] != 0 && entry_experts_[i] == expert) return;
    if (entry_values_[i] < entry_values_[lowest]) lowest = i;
  }
  const uint8_t rounded = Rounded(value);
  if (entry_values_[lowest] >= rounded) return;
  entry_experts_[lowest] = static_cast<uint16_t>(expert);
  entry_values_[lowest] = rounded;
}

void TokenTable::Values(int row, int position, const Unseen& unseen, std::span<float> values) const {
  const float share = BaseShare(row);
  for (size_t e = 0; e < experts_; ++e) values[e] = unseen.rest[e] + (unseen.base[e] - unseen.rest[e]) * share;
  const size_t first = FirstEntry(row, position);
  for (size_t i = first; i < first + kept_; ++i) {
    if (entry_values_[i] != 0) values[entry_experts_[i]] = ValueOf(entry_values_[i]);
  }
}

bool TokenTable::Write(size_t row, std::span<std::byte> bytes) const {
  if (rows_[row].token.value() < 0) return false;
  const size_t first = row * layers_ * kept_, count = layers_ * kept_;
  const auto put = [&bytes](const auto* from, size_t elements) {
    std::memcpy(bytes.data(), from, elements * sizeof(*from));
    bytes = bytes.subspan(elements * sizeof(*from));
  };
  put(&rows_[row], 1);
  put(&entry_experts_[first], count);
  put(&entry_values_[first], count);
  return true;
}

bool TokenTable::Sane(std::span<const std::byte> bytes) const {
  Row row;
  std::memcpy(&row, bytes.data(), sizeof(row));
  for (size_t i = 0; i < layers_ * kept_; ++i) {
    uint16_t expert = 0;
    std::memcpy(&expert, &bytes[sizeof(row) + i * sizeof(expert)], sizeof(expert));
    if (expert >= experts_) return false;
  }
  return row.token.value() >= 0 && row.occurrences >= 0 && row.occurrences <= kMostCounted && row.last_use <= kMostUses;
}

// Into its set of this table, which may have more rows than the one it comes from, or fewer.
void TokenTable::Take(std::span<const std::byte> bytes) {
  Row row;
  std::memcpy(&row, bytes.data(), sizeof(row));
  const int found = Find(row.token);
  Row& place = found == kNoRow ? OldestOf(row.token) : rows_[static_cast<size_t>(found)];
  if (place.last_use > row.last_use) return;
  place = row;
  now_ = std::max(now_, row.last_use);
  const size_t first = FirstEntry(static_cast<int>(&place - rows_.data()), 0), count = layers_ * kept_;
  bytes = bytes.subspan(sizeof(row));
  std::memcpy(&entry_experts_[first], bytes.data(), count * sizeof(uint16_t));
  std::memcpy(&entry_values_[first], &bytes[count * sizeof(uint16_t)], count);
}

}  // namespace moed
