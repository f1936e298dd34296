// What the router may not choose: rows of a table. What a token may lose is held by bound.h, whatever a row proposes.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/expert/policies/eviction_policy.h"
#include "core/expert/residency_view.h"
#include "core/expert/routing.h"

namespace moed {

// Before top-k (masked gating). Engine thread only. `token` has no choices yet.
class RouterMask {
 public:
  virtual ~RouterMask() = default;
  // Every token of every layer, exact ones too: the gate's input (hidden) and the logits (experts) as the router gave them.
  virtual void Observe(LayerId, const TokenRouting& /*token*/, std::span<const float> /*hidden*/,
                       std::span<const float> /*logits*/) {}
  // Sets the logits of experts that this token shall do without to minus infinity. Not asked for exact tokens; where it proposes
  // more than the token may lose, the heaviest experts come back. Without the cache's lock.
  virtual void Apply(LayerId layer, const TokenRouting& token, const ResidencyView& residents, std::span<float> logits) = 0;
  virtual size_t memory_bytes() const { return 0; }  // tables; counted in the budget
};
struct RouterMaskRow {
  std::string_view name;  // "none", which makes null: no mask
  std::string_view description;
  std::unique_ptr<RouterMask> (*make)(const ExpertModelShape& context);
};
std::span<const RouterMaskRow> RouterMasks();
absl::StatusOr<std::unique_ptr<RouterMask>> MakeRouterMask(std::string_view name, const ExpertModelShape& context);

}  // namespace moed
