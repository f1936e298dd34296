// What somebody outside asked to have in memory: records that are read one after the other while nothing else is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/expert/cache/slots.h"
#include "core/expert/expert_index.h"
#include "core/expert/stats.h"

namespace moed {

// First come, first read. Not synchronised.
class AskedReads {
 public:
  explicit AskedReads(const ExpertIndex& index);  // outlives it
  static constexpr uint64_t kBytesForKey = sizeof(uint32_t) + 1;

  // Behind those that wait, as far as it is not among them.
  void Add(const CachedKey& key);
  // The first that is absent; those before it are there, and done.
  std::optional<CachedKey> Next(const Slots& slots);
  // Next is read, or not to be.
  void Begun() { Pop(counts_.done); }
  void Refused() { Pop(counts_.refused); }
  bool empty() const { return next_ == waiting_.size(); }

  AskedCounts counts() const;
  size_t memory_bytes() const { return waiting_.capacity() * sizeof(uint32_t) + waits_.capacity() / 8; }

 private:
  void Pop(uint64_t& what);

  const ExpertIndex& index_;
  std::vector<uint32_t> waiting_;  // keys, from next_ on
  size_t next_ = 0;
  std::vector<bool> waits_;  // by key; empty until the first one
  AskedCounts counts_;
};

}  // namespace moed
