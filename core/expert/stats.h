// Counters of the expert path, for metrics and the services that show it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/expert/incoming.h"
#include "core/expert/routing.h"
#include "core/expert/step_way.h"

namespace moed {

// As core/expert/cache/record_state.h has them; kInflight is the late one.
enum class LookupResult : uint8_t { kHit = 0, kMiss = 1, kInflight = 2 };
inline constexpr int kLookupResults = 3;
enum class PrefetchOutcome : uint8_t { kUsed = 0, kLate = 1, kWasted = 2, kCancelled = 3 };
inline constexpr int kPrefetchOutcomes = 4;
enum class EvictionReason : uint8_t { kDemand = 0, kPrefetch = 1, kResize = 2 };  // kResize: lent to activations, or a new size
inline constexpr int kEvictionReasons = 3;

// Upper bounds (seconds) of the load time histogram; one more bucket for everything above. A record of 300 MB that waits in the
// queue of a disk of 100 MB/s takes tens of seconds.
inline constexpr std::array<double, 20> kLoadSecondsBounds = {.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05,
                                                              .1,     .25,   .5,     1,     2.5,  5,     10,   20,  40,   80};
struct LoadHistogram {
  std::array<uint64_t, kLoadSecondsBounds.size() + 1> buckets{};
  double sum_seconds = 0;
  uint64_t count = 0;
};

struct LayerStats {
  LayerId layer;
  std::array<std::array<uint64_t, kLookupResults>, kPhases> lookups{};  // [phase][result]
  double stall_seconds = 0;
  uint64_t lowered = 0;
  uint64_t skipped = 0;
  uint64_t masked = 0;             // choices of single tokens
  double gate_mass_lost = 0;       // shares of tokens' gate mass that were lowered, skipped or masked
  uint64_t tokens = 0;             // that were routed: gate_mass_lost / tokens is what one lost
  std::vector<uint32_t> resident;  // [precision], now
};

// Distinct experts of one layer of one step. recall = right / routed, precision = right / guessed.
struct PredictionCounts {
  uint64_t guessed = 0;  // before the layer's router ran
  uint64_t routed = 0;
  uint64_t right = 0;  // both
};

// Where an expert that is handed out lies, and what computes with it: in a device's own memory, by the device; in the host's, by
// the device or by the processor.
enum class TierUse : uint8_t { kOnDevice, kOverTheBus, kOnProcessor };
inline constexpr int kTierUses = 3;

// Experts in a device's own memory. All zero where there is none.
struct DeviceTierStats {
  uint64_t capacity_bytes = 0;
  uint64_t bytes = 0;                      // now
  std::array<uint64_t, kTierUses> uses{};  // hand-outs
  uint64_t risen_bytes = 0;                // copied into it
  uint64_t sunk_bytes = 0;                 // copied back
  std::array<uint64_t, kStepWays> steps{};

  uint64_t UsesOf(TierUse use) const { return uses[static_cast<size_t>(use)]; }
  uint64_t StepsOf(StepWay way) const { return steps[static_cast<size_t>(way)]; }
};

// Records that the operator asked to have in memory: those that wait to be read, and since start those that were read or there,
// and those that the policy did not take.
struct AskedCounts {
  uint64_t waiting = 0;
  uint64_t done = 0;
  uint64_t refused = 0;
  uint64_t failed = 0;  // each time that a read did
};

// Records that the operator anchored there.
struct AnchorCounts {
  uint64_t records = 0;
  uint64_t bytes = 0;       // that others have to do without
  uint64_t most_bytes = 0;  // at the cache's size
};

// A consistent copy, but for the residents. Cumulative since start except what says "now".
struct ExpertStats {
  std::vector<LayerStats> layers;  // MoE layers only, ascending
  std::array<double, kPhases> stall_seconds{};
  std::array<LoadHistogram, kLoadReasons> loads{};
  std::vector<std::array<uint64_t, kLoadReasons>> load_bytes;  // [precision][reason]
  std::array<uint64_t, kPrefetchOutcomes> prefetches{};
  uint64_t wasted_prefetch_bytes = 0;  // of guesses: read and evicted before anyone wanted them, or given up
  double prefetch_saved_seconds = 0;   // of reading: what guesses that were wanted had done by then
  std::array<PredictionCounts, kPhases> predictions{};
  std::vector<std::array<uint64_t, kEvictionReasons>> evictions;  // [precision][reason]
  uint64_t cache_bytes = 0;                                       // now: mapped slots
  uint64_t cache_capacity_bytes = 0;                              // now
  AskedCounts asked;
  AnchorCounts anchors;
  DeviceTierStats device;
  uint64_t bypass_loads = 0;    // begun for experts that do not stay: the cache kept others, or had no room
  uint64_t failed_loads = 0;    // those below included
  uint64_t damaged_loads = 0;   // what was read is not what was packed
  std::string last_failure;     // of failed_loads; "": none
  int64_t read_busy_nanos = 0;  // time with at least one read in flight
  uint64_t lock_crossings = 0;  // how often a thread took the cache's lock (cache.h says what a layer may take)
};

struct ExpertHeat {
  CachedKey key;
  uint64_t uses = 0;
  bool resident = false;
};

// What an expert went through since start, at all precisions together.
struct ExpertCell {
  int32_t expert = 0;
  uint32_t resident = 0;   // now: bit p at precision p
  uint32_t on_device = 0;  // of those bits, where it lies in a device's own memory
  uint64_t hits = 0;       // lookups
  uint64_t misses = 0;     // lookups, in flight included
  uint64_t lowered = 0;    // of both
  uint64_t skipped = 0;    // choices that were not computed at all
  uint64_t reads = 0;      // of its records, whole ones, whoever wanted them
};
struct LayerCells {
  LayerId layer;
  std::vector<ExpertCell> experts;  // ascending
};
// Experts that something happened to. An answer to GetExpertMap, of which so many are made or sent at once, takes so many bytes
// for each expert.
struct ExpertMap {
  uint64_t now = 0;                // happenings until now
  std::vector<LayerCells> layers;  // MoE layers, ascending; those without a change too
};
inline constexpr int kExpertMapsAtOnce = 2;
inline constexpr uint64_t kExpertMapBytes = 176;

}  // namespace moed
