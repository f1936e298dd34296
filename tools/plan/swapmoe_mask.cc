#include "tools/plan/swapmoe_mask.h"

#include <limits>
#include <utility>

namespace moed {

SwapMoePlanMask::SwapMoePlanMask(const ExpertIndex& experts, int top_k, SlotCounts slots, std::vector<float> norms, int window,
                                 double fade)
    : index_(experts),
      experts_(static_cast<size_t>(experts.experts_per_layer())),
      slots_(std::move(slots)),
      window_(window),
      fade_(fade),
      importance_(experts.experts_per_layer(), top_k, std::move(norms), SwapMoeScore::kMagnitude),
      in_set_(static_cast<size_t>(experts.layers()) * experts_),
      tokens_(static_cast<size_t>(experts.layers())) {
  for (int layer = 0; layer < index_.layers(); ++layer) importance_.ChooseByNorm(layer, slots_[layer], SetOf(layer));
}

void SwapMoePlanMask::Observe(LayerId layer, const TokenRouting&, std::span<const float> hidden, std::span<const float> logits) {
  const int position = index_.Position(layer);
  if (tokens_[position] == window_) {
    importance_.ChooseSet(position, slots_[position], SetOf(position));
    importance_.Fade(position, fade_);
    tokens_[position] = 0;
  }
  importance_.Add(position, hidden, logits);
  ++tokens_[position];
}

void SwapMoePlanMask::Apply(LayerId layer, const TokenRouting&, const ResidencyView&, std::span<float> logits) {
  const std::span<const uint8_t> set = SetOf(index_.Position(layer));
  for (size_t e = 0; e < experts_; ++e) {
    if (!set[e]) logits[e] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace moed
