// Where every record is and what became of it until now, by its key, for those who only ask.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/expert/cache/record_state.h"
#include "core/expert/expert_index.h"
#include "core/expert/residency_view.h"
#include "core/expert/stats.h"

namespace moed {

// Written under the cache's lock, read by any thread with or without it. Never kFailed: a failed record is absent by its key.
class ResidencyTable final : public ResidencyView {
 public:
  explicit ResidencyTable(const ExpertIndex& index);
  static uint64_t TableBytes(size_t keys);

  bool Resident(CachedKey key) const override { return StateOf(key) == RecordState::kResident; }
  bool Loading(CachedKey key) const override { return StateOf(key) == RecordState::kLoading; }

  const ExpertIndex& index() const { return index_; }
  RecordState StateOf(const CachedKey& key) const { return states_[index_.Of(key)].load(std::memory_order_relaxed); }
  // Whoever becomes resident was read.
  void Set(const CachedKey& key, RecordState state);
  // Of a resident one, until it is absent.
  void PlaceOnDevice(const CachedKey& key, bool on_device);
  void CountLookup(const CachedKey& key, bool hit);
  void CountSkip(LayerId layer, int32_t expert);

  uint64_t lookups(const CachedKey& key) const { return LookupsOf(counts_[index_.Of(key)]); }
  // By lookups, highest first; at most `top`.
  std::vector<ExpertHeat> Hottest(int top) const;
  std::vector<ExpertHeat> ResidentRecords() const;  // by uses, highest first, those without a use last
  // [precision] of the layer at `position`.
  std::vector<uint32_t> Residents(int position) const;
  // Of the experts that something happened to since a map whose `now` was `since`; of all for 0, and for what is none of this
  // table: another one of this process counts elsewhere. What happens meanwhile may be in it, and is in the next one in any case.
  ExpertMap ChangedSince(uint64_t since) const;

  size_t memory_bytes() const { return TableBytes(states_.size()); }

 private:
  using Count = std::atomic<uint64_t>;
  struct Counts {  // of a record
    Count hits{0}, misses{0}, skipped{0}, reads{0};
    Count changed{0};  // by which happening
  };

  static uint64_t Read(const Count& count) { return count.load(std::memory_order_relaxed); }
  static uint64_t LookupsOf(const Counts& counts) { return Read(counts.hits) + Read(counts.misses); }
  void CountOne(Count Counts::*what, Counts& counts);
  void Changed(Counts& counts);
  bool AddCell(int position, int32_t expert, uint64_t since, ExpertCell& cell) const;

  const ExpertIndex index_;
  const uint64_t begin_;
  std::vector<std::atomic<RecordState>> states_;
  std::vector<std::atomic<bool>> on_device_;
  std::vector<Counts> counts_;
  Count happenings_;  // from begin_ on
};

}  // namespace moed
