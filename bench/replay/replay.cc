#include "bench/replay/replay.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
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
  Player(CachingProvider& provider, SimulatedDisk& disk, const ReplayTimes& times)
      : provider_(provider),
        disk_(disk),
        layer_nanos_(std::llround(times.layer_seconds * 1e9)),
        token_nanos_(std::llround(times.token_seconds * 1e9)) {}

  struct Token {
    SequenceId sequence;
    size_t place;  // in the trace
    bool first;    // of its sequence
  };

  // One token of each.
  absl::Status PlayStep(const RoutingTrace& trace, std::span<const Token> tokens) {
    const auto top_k = static_cast<size_t>(trace.shape.top_k);
    for (const Token& token : tokens) provider_.OnToken(token.sequence, trace.token_ids[token.place]);
    choices_.resize(tokens.size() * top_k);
    for (size_t layer = 0; layer < trace.shape.layers.size(); ++layer) {
      routing_.clear();
      wanted_.clear();
      for (const Token& token : tokens) {
        const size_t at = trace.At(token.place, static_cast<int>(layer));
        const auto choices = std::span(choices_).subspan(routing_.size() * top_k, top_k);
        for (size_t slot = 0; slot < top_k; ++slot) {
          choices[slot] = {trace.experts[at + slot], static_cast<float>(trace.probabilities[at + slot]) / 255};
          wanted_.insert(choices[slot].expert);
        }
        routing_.push_back({token.sequence, trace.token_ids[token.place], Phase::kDecode, choices});
        if (!token.first) routing_.back().before = trace.token_ids[token.place - 1];
      }
      experts_ += wanted_.size();
      MOED_RETURN_IF_ERROR(PlayLayer({trace.shape.layers[layer], routing_}));
    }
    disk_.Advance(token_nanos_);
    return absl::OkStatus();
  }
  uint64_t experts() const { return experts_; }  // that steps wanted, each once

 private:
  // The layer computes once all of its experts are there, and holds them while it does.
  absl::Status PlayLayer(const LayerRouting& routing) {
    provider_.Begin(routing);
    handles_.clear();
    for (size_t left = wanted_.size(); left > 0;) {
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
  const int64_t layer_nanos_, token_nanos_;
  uint64_t experts_ = 0;
  // Of the current layer.
  std::vector<ExpertChoice> choices_;
  std::vector<TokenRouting> routing_;
  absl::flat_hash_set<int32_t> wanted_;
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

// All tokens of sequences that begin together.
struct Steps {
  const ReplaySetup& setup;
  CachingProvider& provider;
  Player& player;
  uint64_t played = 0;
  size_t tokens = 0;
  uint64_t started = 0;

  absl::Status Play(const RoutingTrace& trace, std::span<const TraceSequence> sequences) {
    const uint64_t first = started + 1;
    for (size_t i = 0; i < sequences.size(); ++i) provider.OnSequenceStart(SequenceId(++started));
    std::vector<Player::Token> step;
    for (size_t token = 0;; ++token, ++played) {
      step.clear();
      for (size_t i = 0; i < sequences.size(); ++i) {
        if (token < sequences[i].tokens) step.push_back({SequenceId(first + i), sequences[i].first + token, token == 0});
      }
      if (step.empty()) break;
      MOED_RETURN_IF_ERROR(player.PlayStep(trace, step));
      const size_t before = std::exchange(tokens, tokens + step.size());
      if (before / kProgressTokens < tokens / kProgressTokens) setup.progress(tokens);
    }
    for (size_t i = 0; i < sequences.size(); ++i) provider.OnSequenceEnd(SequenceId(first + i));
    return absl::OkStatus();
  }
};

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
  inputs.table_bytes = setup.table_bytes;
  inputs.clock = &disk;
  inputs.options.capacity_bytes = setup.slots * record_bytes;
  inputs.options.split_read_bytes = UINT64_MAX;
  MOED_ASSIGN_OR_RETURN(PresetParts parts, MakeParts(preset, inputs));
  if (own_policy != nullptr) parts.policy = std::move(own_policy);
  MOED_ASSIGN_OR_RETURN(const auto provider, BuildProvider(preset, inputs, std::move(parts)));

  Player player(*provider, disk, setup.times);
  ReplayResult before;
  Steps steps{setup, *provider, player};
  uint64_t steps_before = 0, experts_before = 0;
  for (const RoutingTrace* trace : setup.traces) {
    before = Count(*provider, disk, record_bytes);
    steps_before = steps.played;
    experts_before = player.experts();
    for (size_t first = 0; first < trace->sequences.size(); first += setup.at_once) {
      const size_t count = std::min(setup.at_once, trace->sequences.size() - first);
      MOED_RETURN_IF_ERROR(steps.Play(*trace, std::span(trace->sequences).subspan(first, count)));
    }
  }
  while (!disk.idle()) disk.AwaitRead();
  if (setup.learned != nullptr) {
    MOED_RETURN_IF_ERROR(SaveLearned(*setup.learned, [&](LearnedState& state) { provider->VisitLearned(state); }));
  }
  ReplayResult result = Difference(Count(*provider, disk, record_bytes), before);
  result.tokens = setup.traces.back()->replayed_tokens();
  result.steps = steps.played - steps_before;
  result.experts = player.experts() - experts_before;
  return result;
}

}  // namespace moed
