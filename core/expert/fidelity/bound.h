// What a token may lose, held for every row: neither a mask nor a rule gives up more of a token's gate mass than its request
// allows, and exact tokens lose nothing.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/expert/fidelity/mask.h"
#include "core/expert/fidelity/rule.h"

namespace moed {

// Makes a rule's proposal hold. First what costs nothing: an expert that is resident at the reference precision is used there,
// and one that would be skipped is used as it is resident. Then for every token: its choices that are lowered or skipped go back
// to the reference precision, highest probability first, until their share of its gate mass is no more than it may lose. An
// expert is the same for all tokens of the step, so the strictest of them decides. `lost` (tokens): what each loses in the end,
// its masked share included. Without `take_what_is_free` the first step is left out, for measuring what a rule loses.
void HoldBounds(const LayerDemand& demand, int precisions, std::span<Action> actions, std::span<float> lost,
                bool take_what_is_free = true);

// A mask over one token at a time. Not synchronised.
class BoundedMask {
 public:
  explicit BoundedMask(std::unique_ptr<RouterMask> mask) : mask_(std::move(mask)) {}

  void Observe(LayerId layer, const TokenRouting& token, std::span<const float> hidden, std::span<const float> logits) {
    mask_->Observe(layer, token, hidden, logits);
  }
  // For a token that may lose something. Of its choices, those of the router without a mask, the heaviest that are masked come
  // back until the rest is what the token may lose; one expert is always left to choose. Sets masked and masked_share.
  void Apply(LayerId layer, const ResidencyView& residents, std::span<float> logits, TokenRouting& token);

 private:
  const std::unique_ptr<RouterMask> mask_;
  std::vector<float> unmasked_;
};

}  // namespace moed
