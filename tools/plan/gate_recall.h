// How many of a layer's experts its gate foresees in the layer before: what Fate's shallow depth is decided by.
#pragma once

#include <cstdint>
#include <vector>

#include "core/expert/expert_index.h"
#include "core/expert/fidelity/mask.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/part_context.h"

namespace moed {

// Changes nothing; counts every token of a pass over a text, whose tokens come in their order.
class GateRecall final : public RouterMask {
 public:
  // Of one MoE layer: of the experts that tokens chose.
  struct Counts {
    uint64_t chosen = 0;
    uint64_t top_k = 0;    // among the k that the gate ranked highest for the input of the layer before
    uint64_t widened = 0;  // above the 75th percentile of its probabilities (Fate, section 4.2)
  };

  GateRecall(const ExpertIndex& experts, int top_k, GateFn gate);

  void Observe(LayerId layer, const TokenRouting&, std::span<const float> hidden, std::span<const float> logits) override;
  void Apply(LayerId, const TokenRouting&, const ResidencyView&, std::span<float>) override {}

  const std::vector<Counts>& layers() const { return layers_; }  // by MoE layer; the first is never foreseen

 private:
  static constexpr uint8_t kWidened = 1, kTopK = 2;  // flags of an expert that was foreseen
  void Compare(std::span<const float> logits);
  void Foresee(LayerId next, std::span<const float> hidden);

  const ExpertIndex index_;
  const size_t experts_;
  const size_t top_k_;
  const GateFn gate_;
  std::vector<Counts> layers_;
  int position_ = -1;                           // of the layer that is under way
  size_t row_ = 0;                              // its next token
  std::vector<uint8_t> foreseen_, foreseeing_;  // (tokens, experts) flags: for the layer under way, for the one behind it
  // Scratch. (experts)
  std::vector<float> probabilities_, ordered_;
  std::vector<int32_t> order_;
};

}  // namespace moed
