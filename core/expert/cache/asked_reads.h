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
  // The first that is absent. Those before it are there, or on their way, whoever began that.
  std::optional<CachedKey> Next(const Slots& slots);
  // Of Next: it is read from now on, or not to be.
  void Begun(Slot& slot);
  void Refused();
  // Of a slot that was asked for.
  void Arrived(Slot& slot);
  void Failed(Slot& slot);
  // It was given up before it was read: behind those that wait, once more.
  void GivenUp(Slot& slot);
  bool empty() const { return next_ == waiting_.size(); }

  AskedCounts counts() const;
  size_t memory_bytes() const { return waiting_.capacity() * sizeof(uint32_t) + waits_.capacity() / 8; }

 private:
  void Pop();

  const ExpertIndex& index_;
  std::vector<uint32_t> waiting_;  // keys, from next_ on
  size_t next_ = 0;
  std::vector<bool> waits_;  // by key; empty until the first one
  AskedCounts counts_;
};

}  // namespace moed
