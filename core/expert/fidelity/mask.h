// What the router may not choose. What a token may lose is held by bound.h, whatever a mask proposes.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/ids.h"
#include "core/expert/residency_view.h"
#include "core/expert/routing.h"

namespace moed {

// Masked gating. Engine thread only. `token` has the choices of the router without a mask.
class RouterMask {
 public:
  virtual ~RouterMask() = default;
  // Every token of every layer, exact ones too: the gate's input (hidden) and the logits (experts) as the router gave them.
  virtual void Observe(LayerId, const TokenRouting& /*token*/, std::span<const float> /*hidden*/,
                       std::span<const float> /*logits*/) {}
  // Sets the logits of experts that this token shall do without to minus infinity. Not asked for exact tokens; where it proposes
  // more than the token may lose, the heaviest experts come back. Without the cache's lock.
  virtual void Apply(LayerId layer, const TokenRouting& token, const ResidencyView& residents, std::span<float> logits) = 0;
  virtual size_t memory_bytes() const { return 0; }  // tables: no more than its row says
};

}  // namespace moed
