// Everything that the cache counts, of the process and of each sequence.
#pragma once

#include <cstdint>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "core/base/status.h"
#include "core/expert/cache/demand.h"
#include "core/expert/cache/layer_turn.h"
#include "core/expert/cache/prediction_score.h"
#include "core/expert/cache/slot.h"
#include "core/expert/expert_index.h"
#include "core/expert/provider.h"
#include "core/expert/stats.h"
#include "core/store/damage.h"
#include "core/store/store.h"

namespace moed {

// Sequences that are named have been started. Not synchronised.
class CacheStatistics {
 public:
  explicit CacheStatistics(const StoreDescription& store);

  void StartSequence(SequenceId sequence);
  void EndSequence(SequenceId sequence);
  SequenceCounters counters(SequenceId sequence) const;  // none for one that is not there

  // A layer was routed; `lost` (tokens): the share of its gate mass that each token loses.
  void CountLosses(const LayerRouting& routing, std::span<const float> lost);
  void CountSkipped(LayerId layer, std::span<const SequenceUse> uses);
  void CountLookup(const CachedKey& key, LookupResult result, Phase phase, std::span<const SequenceUse> uses);
  void CountGuesses(LayerId layer, const DemandSet& demand, std::span<const Guess> guesses, float min_probability);
  void CountMoreGuesses(std::span<const Guess> guesses, float min_probability) { score_.OnGuesses(guesses, min_probability); }
  // The engine waited for an expert of the layer.
  void CountWait(const LayerTurn& turn, double seconds);

  void CountRead(SequenceId sequence, uint64_t bytes) { Counters(sequence).bytes_read += bytes; }
  void CountLoad(const Slot& slot, uint64_t bytes, double seconds);  // `bytes`: from the file
  void CountFailedLoad(const absl::Status& why) {
    ++stats_.failed_loads;
    stats_.damaged_loads += IsDamage(why);
    stats_.last_failure = StrCat(why.message());
  }
  void CountBypass() { ++stats_.bypass_loads; }
  void CountEviction(const Slot& slot, EvictionReason why);
  // `saved_seconds` of reading, where it was wanted.
  void CountOutcome(PrefetchOutcome outcome, double saved_seconds);
  void CountWastedGuess(uint64_t bytes) { stats_.wasted_prefetch_bytes += bytes; }
  // `bytes` were read of a record that nobody waits for any more.
  void CountGivenUp(const Slot& slot, uint64_t bytes);

  // Without what is "now".
  ExpertStats stats() const;
  size_t memory_bytes() const { return score_.memory_bytes(); }

 private:
  LayerStats& Layer(LayerId layer) { return stats_.layers[index_.Position(layer)]; }
  SequenceCounters& Counters(SequenceId sequence);

  const ExpertIndex index_;  // one precision
  absl::flat_hash_map<SequenceId, SequenceCounters> sequences_;
  ExpertStats stats_;
  PredictionScore score_;
};

}  // namespace moed
