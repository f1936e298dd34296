// The clamped SwiGLU: out = (clamp(up, -limit, limit) + 1) * g / (1 + exp(-alpha g)), g = min(gate, limit). Plain data only:
// files compiled for one instruction set include this.
#pragma once

namespace moed {

struct SwiGluClamp {
  float alpha = 0;
  float limit = 0;  // > 0
};

}  // namespace moed
