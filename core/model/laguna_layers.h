// What tells Laguna's layers with a window from those that see all, for the readers of its files.
#pragma once

#include "core/model/spec.h"

namespace moed {

struct LagunaLayers {
  int heads = 0;      // of queries
  Rotation rotation;  // says its dimensions
};

// spec.windows, head_dim and kv_heads are known.
void SetLagunaLayers(ModelSpec& spec, const LagunaLayers& full, const LagunaLayers& sliding);
// All but the sizes: norms, the router, the gate's function.
void SetLagunaTraits(ModelSpec& spec, bool gate_per_head);

}  // namespace moed
