// How often each expert followed a key, for as many keys as there is room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace moed {

// Bounded: a key has a place in one set of eight rows, and takes the row there that was counted least. Not synchronised.
class PathTable {
 public:
  static constexpr int kNoRow = -1;
  static constexpr size_t kWays = 8;
  static constexpr uint16_t kMostOccurrences = 65534;  // then a row's counts are halved

  static size_t RowBytes(int experts) { return sizeof(uint64_t) + (static_cast<size_t>(experts) + 1) * sizeof(uint16_t); }

  static size_t LeastBytes(int experts) { return kWays * RowBytes(experts); }  // however few it was given

  // As many rows as fit `max_bytes`, one set at least.
  PathTable(int experts, size_t max_bytes);

  // Keys are hashes, not 0. kNoRow when the key is not there.
  int Find(uint64_t key) const;
  // One more occurrence, followed by `chosen`, which are distinct.
  void Count(uint64_t key, std::span<const int32_t> chosen);

  uint32_t occurrences(int row) const { return counts_[Begin(row)]; }
  std::span<const uint16_t> counts(int row) const {  // (experts), each at most occurrences(row)
    return std::span(counts_).subspan(Begin(row) + 1, stride_ - 1);
  }

  size_t rows() const { return keys_.size(); }
  size_t memory_bytes() const { return keys_.size() * sizeof(uint64_t) + counts_.size() * sizeof(uint16_t); }

  // The contents, for a file.
  std::span<uint64_t> raw_keys() { return keys_; }
  std::span<const uint64_t> raw_keys() const { return keys_; }
  std::span<uint16_t> raw_counts() { return counts_; }
  std::span<const uint16_t> raw_counts() const { return counts_; }
  // DATA_LOSS where the contents break what the above says of them.
  absl::Status Check() const;

 private:
  size_t FirstOfSet(uint64_t key) const { return (key >> 20) % (keys_.size() / kWays) * kWays; }
  size_t Begin(size_t row) const { return row * stride_; }

  const size_t stride_;           // of counts_: occurrences, then experts
  std::vector<uint64_t> keys_;    // (rows), 0: empty
  std::vector<uint16_t> counts_;  // (rows, stride)
};

}  // namespace moed
