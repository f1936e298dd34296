// Somebody else than the model's own router who says which experts a token goes to. Programs that measure link one; the daemon
// has none.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "core/expert/part_context.h"
#include "core/expert/presets/preset.h"
#include "core/expert/provider.h"
#include "core/model/spec.h"
#include "core/store/store.h"

namespace moed {

class RoutingSource {
 public:
  virtual ~RoutingSource() = default;
  // Before anything is planned. INVALID_ARGUMENT: not for this model, or not with these parts.
  virtual absl::Status Check(const StoreDescription& store, const ModelSpec& spec, const PresetSetup& preset) const = 0;
  // What predictors are given as the model's gates; null: nothing.
  virtual GateFn gate() const = 0;
  // Stands between the model and `next`, which outlives it; both outlived by this source.
  virtual std::unique_ptr<ExpertProvider> Before(ExpertProvider& next) = 0;
};

}  // namespace moed
