// The activations of feed-forward blocks, an element at a time.
#pragma once

#include "core/kernels/cuda/language.h"
#include "core/kernels/ffn_activation.h"
#include "core/kernels/math.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

__device__ inline float ClampedSwiGlu(const SwiGluClamp& clamp, float gate, float up) {
  const float g = clamp.limit < gate ? clamp.limit : gate;
  float u = clamp.limit < up ? clamp.limit : up;
  u = -clamp.limit > u ? -clamp.limit : u;
  return (u + 1.0f) * (g / (1.0f + Exp(-(clamp.alpha * g))));
}

// Of element i.
__device__ inline float Activated(const FfnActivation& activation, Global<const float> gate, Global<const float> up, int64_t i) {
  if (!HasGate(activation.function)) {
    const float r = 0.0f > up[i] ? 0.0f : static_cast<float>(up[i]);
    return activation.function == GateFunction::kRelu ? r : r * r;
  }
  if (activation.function == GateFunction::kClampedSwiGlu) return ClampedSwiGlu(activation.clamp, gate[i], up[i]);
  if (activation.function == GateFunction::kReGlu) return (gate[i] < 0.0f ? 0.0f : static_cast<float>(gate[i])) * up[i];
  if (activation.function == GateFunction::kGeGlu) return Gelu(gate[i]) * up[i];
  return Silu(gate[i]) * up[i];
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
