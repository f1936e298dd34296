// A recorded trace in the place of the router: everything else (store, cache, reads, kernels) is the real one.
//
// The first token of a prompt is no text: its id is the number of a recorded sequence. From then on the tokens of the request,
// those of its prompt first, are that sequence's tokens: the expert path is told their ids, and in every layer with experts they
// go to the experts that they went to, with the gate weights that they had. After the last recorded token comes the first again.
// The model computes with the tokens that it was really given.
//
// The router's logits beyond the top k are not recorded, so nothing that masks the router can be measured. Nor are the gates'
// answers to the layer before's input: see Create.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "bench/replay/routing_trace_reader.h"
#include "server/startup/routing_source.h"

namespace moed {

// Used on the engine's thread, but for Create and Check.
class RecordedRouting final : public RoutingSource {
 public:
  // `gate_recall`, 0 to 1: what gates that are asked one layer ahead are supposed to know. They answer with the record of the
  // layer asked for, each choice replaced, with probability 1 - gate_recall ^ (layers ahead), by an expert that was not chosen;
  // which one is the same in every run. Absent: there are no gates, and predictors that need them are refused. INVALID_ARGUMENT:
  // a recall out of range, a trace of too many tokens.
  static absl::StatusOr<std::unique_ptr<RecordedRouting>> Create(RoutingTrace trace, std::optional<double> gate_recall);

  absl::Status Check(const StoreDescription& store, const ModelSpec& spec, const PresetSetup& preset) const override;
  GateFn gate() const override;
  std::unique_ptr<ExpertProvider> Before(ExpertProvider& next) override;

 private:
  RecordedRouting(RoutingTrace trace, std::optional<double> gate_recall);
  void AnswerGate(LayerId layer, std::span<const float> ticket, std::span<float> probabilities) const;

  const RoutingTrace trace_;
  const std::optional<double> gate_recall_;
};

}  // namespace moed
