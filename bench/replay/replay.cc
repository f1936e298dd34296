#include "bench/replay/replay.h"

#include <cmath>
#include <utility>

#include "bench/replay/simulated_disk.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/builder/build_provider.h"
#include "core/expert/presets/preset.h"

namespace moed {
namespace {

constexpr size_t kProgressTokens = 1000;

class Player {
 public:
  Player(CachingProvider& provider, SimulatedDisk& disk, double layer_seconds)
      : provider_(provider), disk_(disk), layer_nanos_(std::llround(layer_seconds * 1e9)) {}

  absl::Status PlayToken(const RoutingTrace& trace, size_t token, SequenceId sequence) {
    provider_.OnToken(sequence, trace.token_ids[token]);
    choices_.resize(static_cast<size_t>(trace.shape.top_k));
    for (size_t layer = 0; layer < trace.shape.layers.size(); ++layer) {
      const size_t at = trace.At(token, static_cast<int>(layer));
      for (size_t slot = 0; slot < choices_.size(); ++slot) {
        choices_[slot] = {trace.experts[at + slot], static_cast<float>(trace.probabilities[at + slot]) / 255};
      }
      const TokenRouting routing[] = {{sequence, trace.token_ids[token], Phase::kDecode, choices_}};
      MOED_RETURN_IF_ERROR(PlayLayer({trace.shape.layers[layer], routing}));
    }
    return absl::OkStatus();
  }

 private:
  // The layer computes once all of its experts are there, and holds them while it does.
  absl::Status PlayLayer(const LayerRouting& routing) {
    provider_.Begin(routing);
    handles_.clear();
    for (size_t left = choices_.size(); left > 0;) {
      std::optional<ReadyExpert> ready = provider_.NextReady();
      if (ready) {
        MOED_RETURN_IF_ERROR(ready->status);
        handles_.push_back(std::move(ready->handle));
        --left;
      } else if (!disk_.idle()) {
        disk_.AwaitRead();
      } else {
        MOED_CHECK(!handles_.empty());
        handles_.clear();  // a cache smaller than what a layer wants
      }
    }
    disk_.Advance(layer_nanos_);
    handles_.clear();
    return absl::OkStatus();
  }

  CachingProvider& provider_;
  SimulatedDisk& disk_;
  const int64_t layer_nanos_;
  std::vector<ExpertChoice> choices_;
  std::vector<ExpertHandle> handles_;
};

// What was counted until now.
ReplayResult Count(const CachingProvider& provider, const SimulatedDisk& disk, uint64_t record_bytes) {
  const ExpertStats stats = provider.Stats();
  ReplayResult sum;
  for (const LayerStats& layer : stats.layers) {
    const auto& lookups = layer.lookups[static_cast<size_t>(Phase::kDecode)];
    for (const uint64_t count : lookups) sum.lookups += count;
    sum.ready += lookups[static_cast<size_t>(LookupResult::kHit)];
  }
  for (const auto& by_reason : stats.load_bytes) {
    for (const uint64_t bytes : by_reason) sum.reads += bytes / record_bytes;
    sum.guesses += by_reason[static_cast<size_t>(LoadReason::kPrefetch)] / record_bytes;
  }
  sum.seconds = disk.NowSeconds();
  return sum;
}

ReplayResult Difference(const ReplayResult& after, const ReplayResult& before) {
  return {.lookups = after.lookups - before.lookups,
          .ready = after.ready - before.ready,
          .reads = after.reads - before.reads,
          .guesses = after.guesses - before.guesses,
          .seconds = after.seconds - before.seconds};
}

}  // namespace

absl::StatusOr<ReplayResult> Replay(const ReplaySetup& setup, std::unique_ptr<EvictionPolicy> own_policy) {
  const uint64_t record_bytes = setup.store->largest_expert_bytes(kReferencePrecision);
  SimulatedDisk disk(static_cast<double>(record_bytes) / setup.times.read_seconds);
  MOED_ASSIGN_OR_RETURN(
      const PresetSetup preset,
      ChoosePreset(
          {.preset = "load-on-demand-lru", .policy = setup.policy, .predictor = setup.predictor, .options = setup.options},
          *setup.store));
  ProviderInputs inputs;
  inputs.store = setup.store;
  inputs.reads = &disk;
  inputs.router.top_k = setup.traces.front()->shape.top_k;
  inputs.clock = &disk;
  inputs.options.capacity_bytes = setup.slots * record_bytes;
  inputs.options.split_read_bytes = UINT64_MAX;
  MOED_ASSIGN_OR_RETURN(PresetParts parts, MakeParts(preset, inputs));
  if (own_policy != nullptr) parts.policy = std::move(own_policy);
  MOED_ASSIGN_OR_RETURN(const auto provider, BuildProvider(preset, inputs, std::move(parts)));

  Player player(*provider, disk, setup.times.layer_seconds);
  ReplayResult before;
  size_t done = 0;
  uint64_t started = 0;
  for (const RoutingTrace* trace : setup.traces) {
    before = Count(*provider, disk, record_bytes);
    for (const TraceSequence& sequence : trace->sequences) {
      provider->OnSequenceStart(SequenceId(++started));
      for (size_t token = sequence.first; token < sequence.first + sequence.tokens; ++token) {
        MOED_RETURN_IF_ERROR(player.PlayToken(*trace, token, SequenceId(started)));
        if (++done % kProgressTokens == 0) setup.progress(done);
      }
      provider->OnSequenceEnd(SequenceId(started));
    }
  }
  while (!disk.idle()) disk.AwaitRead();
  ReplayResult result = Difference(Count(*provider, disk, record_bytes), before);
  result.tokens = setup.traces.back()->replayed_tokens();
  return result;
}

}  // namespace moed
