// The state of every record by its key, for those who only ask.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "core/expert/cache/record_state.h"
#include "core/expert/expert_index.h"
#include "core/expert/residency_view.h"

namespace moed {

// Written under the cache's lock, read by any thread with or without it. Never kFailed: a failed record is absent by its key.
class ResidencyTable final : public ResidencyView {
 public:
  explicit ResidencyTable(const ExpertIndex& index) : index_(index), states_(index.size()) {}

  bool Resident(CachedKey key) const override { return StateOf(key) == RecordState::kResident; }
  bool Loading(CachedKey key) const override { return StateOf(key) == RecordState::kLoading; }

  const ExpertIndex& index() const { return index_; }
  RecordState StateOf(const CachedKey& key) const { return states_[index_.Of(key)].load(std::memory_order_relaxed); }
  void Set(const CachedKey& key, RecordState state) { states_[index_.Of(key)].store(state, std::memory_order_relaxed); }
  size_t memory_bytes() const { return states_.size() * sizeof(states_.front()); }

 private:
  const ExpertIndex index_;
  std::vector<std::atomic<RecordState>> states_;
};

}  // namespace moed
