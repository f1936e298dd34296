#include "core/expert/cache/cache_statistics.h"

#include <algorithm>

#include "core/base/check.h"

namespace moed {

CacheStatistics::CacheStatistics(const StoreDescription& store)
    : index_(store.moe_layers, static_cast<int>(store.experts_per_layer), 1), score_(index_) {
  for (const LayerId layer : store.moe_layers) {
    stats_.layers.push_back({.layer = layer, .resident = std::vector<uint32_t>(store.precisions.size())});
  }
  stats_.load_bytes.resize(store.precisions.size());
  stats_.evictions.resize(store.precisions.size());
}

void CacheStatistics::StartSequence(SequenceId sequence) {
  const bool is_new = sequences_.try_emplace(sequence).second;
  MOED_CHECK(is_new);
}

void CacheStatistics::EndSequence(SequenceId sequence) {
  const size_t erased = sequences_.erase(sequence);
  MOED_CHECK(erased == 1);
}

SequenceCounters CacheStatistics::counters(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? SequenceCounters() : found->second;
}

SequenceCounters& CacheStatistics::Counters(SequenceId sequence) {
  const auto found = sequences_.find(sequence);
  MOED_CHECK(found != sequences_.end());
  return found->second;
}

void CacheStatistics::CountLosses(const LayerRouting& routing, std::span<const float> lost) {
  MOED_CHECK(lost.size() == routing.tokens.size());
  LayerStats& layer = Layer(routing.layer);
  SequenceCounters* counters = nullptr;
  for (size_t t = 0; t < lost.size(); ++t) {
    const TokenRouting& token = routing.tokens[t];
    if (t == 0 || token.sequence != routing.tokens[t - 1].sequence) counters = &Counters(token.sequence);
    ++counters->routed_tokens;
    ++layer.tokens;
    counters->masked += token.masked;
    layer.masked += token.masked;
    counters->gate_mass_lost += lost[t];
    layer.gate_mass_lost += lost[t];
  }
}

void CacheStatistics::CountSkipped(LayerId layer, std::span<const SequenceUse> uses) {
  ++Layer(layer).skipped;
  for (const SequenceUse& use : uses) ++Counters(use.sequence).skipped;
}

void CacheStatistics::CountLookup(const CachedKey& key, LookupResult result, Phase phase, std::span<const SequenceUse> uses) {
  const bool lowered = key.precision != kReferencePrecision;
  LayerStats& layer = Layer(key.layer);
  ++layer.lookups[EnumIndex(phase)][EnumIndex(result)];
  layer.lowered += lowered;
  for (const SequenceUse& use : uses) {
    SequenceCounters& counters = Counters(use.sequence);
    ++(result == LookupResult::kHit ? counters.hits : counters.misses);
    counters.lowered += lowered;
  }
}

void CacheStatistics::CountGuesses(LayerId layer, const DemandSet& demand, std::span<const Guess> guesses,
                                   float min_probability) {
  score_.OnRouted(layer, demand.phase(), demand.experts());
  score_.OnGuesses(guesses, min_probability);
}

void CacheStatistics::CountWait(const LayerTurn& turn, double seconds) {
  stats_.stall_seconds[EnumIndex(turn.phase())] += seconds;
  Layer(turn.layer()).stall_seconds += seconds;
  for (const SequenceId sequence : turn.sequences()) Counters(sequence).stall_seconds += seconds;
}

void CacheStatistics::CountLoad(const Slot& slot, uint64_t bytes, double seconds) {
  LoadHistogram& histogram = stats_.loads[EnumIndex(slot.reason)];
  const auto bucket = std::ranges::lower_bound(kLoadSecondsBounds, seconds);
  ++histogram.buckets[static_cast<size_t>(bucket - kLoadSecondsBounds.begin())];
  ++histogram.count;
  histogram.sum_seconds += seconds;
  stats_.load_bytes[slot.key.precision][EnumIndex(slot.reason)] += bytes;
}

void CacheStatistics::CountGivenUp(const Slot& slot, uint64_t bytes) {
  stats_.load_bytes[slot.key.precision][EnumIndex(slot.reason)] += bytes;
  stats_.wasted_prefetch_bytes += bytes;
}

void CacheStatistics::CountEviction(const Slot& slot, EvictionReason why) {
  ++stats_.evictions[slot.key.precision][EnumIndex(why)];
}

void CacheStatistics::CountOutcome(PrefetchOutcome outcome, double saved_seconds) {
  ++stats_.prefetches[EnumIndex(outcome)];
  stats_.prefetch_saved_seconds += saved_seconds;
}

ExpertStats CacheStatistics::stats() const {
  ExpertStats stats = stats_;
  stats.predictions = score_.counts();
  return stats;
}

}  // namespace moed
