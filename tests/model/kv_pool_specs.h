// Small shapes of models for pools of keys and values.
#pragma once

#include "core/model/kv_pool.h"

namespace moed {

inline ModelSpec SmallSpec() {
  ModelSpec spec;
  spec.layers = 3;
  spec.kv_heads = 2;
  spec.head_dim = 6;
  return spec;
}

// Layers 0 and 2 have windows.
inline ModelSpec WindowedSpec(int window) {
  ModelSpec spec = SmallSpec();
  spec.windows = {window, 0, window};
  return spec;
}

}  // namespace moed
