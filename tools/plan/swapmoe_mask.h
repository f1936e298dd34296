// SwapMoE's run-time choice of virtual experts as it would be if every load were done at once: what the planner measures.
#pragma once

#include <cstdint>
#include <vector>

#include "core/expert/expert_index.h"
#include "core/expert/fidelity/mask.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/swapmoe/importance.h"
#include "tools/plan/swapmoe_accuracy.h"

namespace moed {

// A layer's set begins as the experts of the largest norms, and follows what its tokens before would have used: chosen anew every
// `window` tokens. For one pass over a text; tokens of a layer come in their order.
class SwapMoePlanMask final : public RouterMask {
 public:
  // `norms` (layers, experts).
  SwapMoePlanMask(const ExpertIndex& experts, int top_k, SlotCounts slots, std::vector<float> norms, int window, double fade);

  void Observe(LayerId layer, const TokenRouting&, std::span<const float> hidden, std::span<const float> logits) override;
  void Apply(LayerId layer, const TokenRouting&, const ResidencyView&, std::span<float> logits) override;

 private:
  std::span<uint8_t> SetOf(int layer) { return std::span(in_set_).subspan(static_cast<size_t>(layer) * experts_, experts_); }

  const ExpertIndex index_;
  const size_t experts_;
  const SlotCounts slots_;
  const int window_;
  const double fade_;
  SwapMoeImportance importance_;
  std::vector<uint8_t> in_set_;  // (layers, experts)
  std::vector<int> tokens_;      // by layer: since its last choice
};

}  // namespace moed
