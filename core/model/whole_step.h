// Steps that a device computes without the host in their middle: a layer's router chooses, and the products of the experts look
// up where the chosen ones lie. So one list of launches has all layers, and there is one wait.
//
// That takes experts that all lie where the backend reads them, at the reference precision, and few tokens: every choice is a
// product of its own, also where tokens share an expert. The bits are those of a step that goes layer by layer.
#pragma once

#include <vector>

#include "core/expert/provider.h"
#include "core/model/expert_block.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class StepWatcher;

class WholeStep {
 public:
  explicit WholeStep(Step& step) : step_(step), layers_(step.spec.MoeLayers()) {}

  // Before the layers of the step, whose rows are in the batch. The provider hears how it runs, if the backend gains by whole
  // ones.
  void Begin(ExpertProvider& provider);
  bool runs() const { return !table_.empty(); }

  // The layer's scratch.choices and scratch.slot_places, for a router that follows.
  void BeginLayer(LayerId layer);
  // To scratch.slots, as the places say. `input`: the prepared input of all rows.
  void ComputeExperts(LayerId layer, const ExpertBiases& biases, const Activations& input);

  // After the step's Fence, whose error tells nothing: the provider hears what every layer chose.
  void End(ExpertProvider& provider, const absl::Status& done);

 private:
  StepWay WayOf(ExpertProvider& provider);
  int slots() const { return step_.batch.rows() * step_.spec.top_k; }
  std::span<ExpertChoice> ChoicesOf(size_t position) const {
    return step_.scratch.whole_choices.subspan(position * kGroupRows, static_cast<size_t>(slots()));
  }
  size_t PositionOf(LayerId layer) const;
  ExpertTable MatricesOf(LayerId layer, ExpertPart part) const;  // of each expert
  MatMulJob JobOf(LayerId layer, ExpertPart part, int slot, const Activations& input, float* output, const float* bias) const;
  void TellLayer(size_t position, ExpertProvider& provider);

  Step& step_;
  const std::vector<LayerId> layers_;
  ExpertTable table_;                // empty: the step goes layer by layer
  std::span<ExpertChoice> choices_;  // the scratch's own
};

}  // namespace moed
