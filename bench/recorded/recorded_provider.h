// What stands between a model and its experts where routing is recorded (recorded_routing.h).
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "bench/replay/routing_trace_reader.h"
#include "core/expert/provider.h"

namespace moed {

// Where gates are asked for a token of the trace, its number and the layer's stand in the first two places of the gate's input.
inline constexpr size_t kTicketFloats = 2;
inline constexpr size_t kMostTicketTokens = size_t{1} << 24;  // that a float tells apart

// Masks the router: that is where logits may be replaced.
class RecordedProvider final : public ExpertProvider {
 public:
  RecordedProvider(const RoutingTrace& trace, ExpertProvider& next) : trace_(trace), next_(next) {}

  ActivationLender* lender() override { return next_.lender(); }
  void OnSequenceStart(SequenceId sequence) override { next_.OnSequenceStart(sequence); }
  void OnSequenceEnd(SequenceId sequence) override;
  void OnSequencePause(SequenceId sequence) override { next_.OnSequencePause(sequence); }
  void OnToken(SequenceId sequence, TokenId token) override;
  void OnGateInput(SequenceId sequence, LayerId layer, std::span<const float> hidden) override;
  void OnTokenGateInput(SequenceId sequence, LayerId layer, std::span<const float> hidden) override;
  bool masks_router() const override { return true; }
  void MaskRouter(LayerId layer, std::span<const float> hidden, std::span<float> logits, TokenRouting& token) override;
  void Begin(const LayerRouting& routing) override;
  std::optional<ReadyExpert> Next() override { return next_.Next(); }
  std::optional<ReadyExpert> NextReady() override { return next_.NextReady(); }
  SequenceCounters sequence_counters(SequenceId sequence) const override { return next_.sequence_counters(sequence); }

 private:
  // The rows of a sequence come in the same order in every call about a layer.
  struct Sequence {
    const TraceSequence* recorded = nullptr;
    size_t played = 0;         // tokens
    uint64_t step = 0;         // that `rows` are of
    std::vector<size_t> rows;  // tokens of the trace
    size_t row = 0;            // the next one
  };

  Sequence& Find(SequenceId sequence);
  static size_t NextRow(Sequence& sequence);
  std::span<const float> Ticket(size_t token, LayerId layer, size_t hidden);

  const RoutingTrace& trace_;
  ExpertProvider& next_;
  absl::flat_hash_map<SequenceId, Sequence> sequences_;
  uint64_t step_ = 0;
  bool step_began_ = true;  // no token of the next step has come
  std::vector<float> ticket_;
  std::vector<TokenRouting> routing_;  // of the layer that has begun
};

}  // namespace moed
