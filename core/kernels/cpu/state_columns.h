// The gated delta rule and the state space of Mamba-2, whatever the vectors (struct Lanes: lanes256.h, lanes_neon.h): a column of
// the state a lane, so that no sum crosses lanes. Included by files compiled for one instruction set each: everything here has
// internal linkage.
#pragma once

#include "core/kernels/recurrence.h"

namespace moed {
namespace {

// A vector of one: the columns that are left.
struct OneLane {
  using Floats = float;
  static constexpr int kLanes = 1;
  static inline float Load(const float* at) { return *at; }
  static inline float Broadcast(float x) { return x; }
  static inline float Zero() { return 0; }
  static inline void Store(float* at, float x) { *at = x; }
  static inline float MultiplyAdd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static inline float Multiply(float a, float b) { return a * b; }
  static inline float Subtract(float a, float b) { return a - b; }
};

enum class StateRule : uint8_t { kDelta, kDeltaByChannel, kStateSpace };

// Columns [first, first + kVectors vectors), a token after the other: few enough to stay near the processor.
template <class L, int kVectors, StateRule kRule>
inline void StateColumns(const StateArguments& a, int first) {
  using Floats = typename L::Floats;
  constexpr bool kDelta = kRule != StateRule::kStateSpace, kByChannel = kRule == StateRule::kDeltaByChannel;
  for (int token = 0; token < a.tokens; ++token) {
    const float* query = a.query + token * a.row_stride;
    const float* key = a.key + token * a.row_stride;
    const float* value = a.value + token * a.row_stride + first;
    const float* decays = a.decay + token * a.decay_stride;
    const Floats decay = L::Broadcast(*decays);
    Floats sum[kVectors], change[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[v] = L::Zero();
    if constexpr (kDelta) {
      const float* held = a.state + first;
      for (int i = 0; i < a.key_dim; ++i, held += a.state_stride) {
        const Floats k = L::Broadcast(kByChannel ? decays[i] * key[i] : key[i]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[v] = L::MultiplyAdd(L::Load(held + v * L::kLanes), k, sum[v]);
      }
    }
    const Floats rate = L::Broadcast(a.rate[token * a.gate_stride]);
    const Floats minus_decay = L::Broadcast(-*decays);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Floats missing = L::Load(value + v * L::kLanes);
      if constexpr (kByChannel) {
        missing = L::Subtract(missing, sum[v]);
      } else if constexpr (kDelta) {
        missing = L::MultiplyAdd(minus_decay, sum[v], missing);
      }
      change[v] = L::Multiply(missing, rate);
      sum[v] = L::Zero();
    }
    float* state = a.state + first;
    for (int i = 0; i < a.key_dim; ++i, state += a.state_stride) {
      const Floats k = L::Broadcast(key[i]), q = L::Broadcast(query[i]), kept = kByChannel ? L::Broadcast(decays[i]) : decay;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Floats decayed = L::Multiply(kept, L::Load(state + v * L::kLanes));
        const Floats learned = L::MultiplyAdd(k, change[v], decayed);
        L::Store(state + v * L::kLanes, learned);
        sum[v] = L::MultiplyAdd(learned, q, sum[v]);
      }
    }
    const Floats scale = L::Broadcast(a.scale), skip = L::Broadcast(a.skip);
    float* output = a.output + token * a.output_stride + first;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      L::Store(output + v * L::kLanes,
               kDelta ? L::Multiply(scale, sum[v]) : L::MultiplyAdd(skip, L::Load(value + v * L::kLanes), sum[v]));
    }
  }
}

template <class L, StateRule kRule>
inline void RunStates(const StateArguments& a) {
  int first = 0;
  for (; first + 4 * L::kLanes <= a.columns; first += 4 * L::kLanes) StateColumns<L, 4, kRule>(a, first);
  for (; first + L::kLanes <= a.columns; first += L::kLanes) StateColumns<L, 1, kRule>(a, first);
  for (; first < a.columns; ++first) StateColumns<OneLane, 1, kRule>(a, first);
}

template <class L>
inline void RunDeltaRule(const StateArguments& a) {
  a.decay_by_channel ? RunStates<L, StateRule::kDeltaByChannel>(a) : RunStates<L, StateRule::kDelta>(a);
}

}  // namespace
}  // namespace moed
