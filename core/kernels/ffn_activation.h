// What feed-forward blocks make of their gates and ups, for the host and for kernels.
#pragma once

#include <stdint.h>

#include "core/kernels/swi_glu_clamp.h"

namespace moed {

// Squared ReLU and ReLU are of ups alone.
enum class GateFunction : uint8_t { kSwiGlu, kClampedSwiGlu, kGeGlu, kSquaredRelu, kRelu, kReGlu };

constexpr bool HasGate(GateFunction function) {
  return function != GateFunction::kSquaredRelu && function != GateFunction::kRelu;
}

struct FfnActivation {
  GateFunction function = GateFunction::kSwiGlu;
  SwiGluClamp clamp;  // of kClampedSwiGlu
};

}  // namespace moed
