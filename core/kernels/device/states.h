// Layers with a state: a warp takes some columns of a head's state through the tokens of a run, the state in shared memory.
#pragma once

#include "core/kernels/cuda/language.h"
#include "core/kernels/cuda_operations.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

// A token's numbers for the column of this thread.
struct StateToken {
  Global<const float> query;
  Global<const float> key;
  Global<const float> decays;
  float value;
  float decay;  // where they are not those of channels
  float rate;
};

// The sums of a column end before its state changes: it is read and written in two passes.
__device__ inline float DeltaRuleOfColumn(const cuda::StateOperation& a, const StateToken& t, Shared<float> state, int stride) {
  float held = 0, sum = 0;
  for (int i = 0; i < a.key_dim; ++i) held = fmaf(state[i * stride], t.key[i], held);
  const float change = fmaf(-t.decay, held, t.value) * t.rate;
  for (int i = 0; i < a.key_dim; ++i) {
    const float changed = fmaf(t.key[i], change, t.decay * state[i * stride]);
    state[i * stride] = changed;
    sum = fmaf(changed, t.query[i], sum);
  }
  return a.scale * sum;
}

__device__ inline float DeltaRuleByChannelOfColumn(const cuda::StateOperation& a, const StateToken& t, Shared<float> state,
                                                   int stride) {
  float held = 0, sum = 0;
  for (int i = 0; i < a.key_dim; ++i) held = fmaf(state[i * stride], t.decays[i] * t.key[i], held);
  const float change = (t.value - held) * t.rate;
  for (int i = 0; i < a.key_dim; ++i) {
    const float changed = fmaf(t.key[i], change, t.decays[i] * state[i * stride]);
    state[i * stride] = changed;
    sum = fmaf(changed, t.query[i], sum);
  }
  return a.scale * sum;
}

__device__ inline float StateSpaceOfColumn(const cuda::StateOperation& a, const StateToken& t, Shared<float> state, int stride,
                                           float skip) {
  const float change = t.value * t.rate;
  float sum = 0;
  for (int i = 0; i < a.key_dim; ++i) {
    const float changed = fmaf(t.key[i], change, t.decay * state[i * stride]);
    state[i * stride] = changed;
    sum = fmaf(changed, t.query[i], sum);
  }
  return fmaf(skip, t.value, sum);
}

// Block (run, head, columns).
__global__ void States(cuda::StateOperation a) {
  JoinLaunches();
  const StateRun run = Global<const StateRun>(a.runs)[blockIdx.x];
  const int64_t first_row = Global<const int64_t>(a.first_rows)[blockIdx.x];
  const int head = blockIdx.y, columns = a.columns, lane = threadIdx.x;
  const int column = blockIdx.z * columns + lane;
  if (lane >= columns || column >= a.value_dim) return;

  const Shared<float> own = SharedMemory<float>() + lane;
  const Global<float> kept = Global<float>(run.state) + static_cast<int64_t>(head) * a.key_dim * a.value_dim + column;
  for (int i = 0; i < a.key_dim; ++i) own[i * columns] = run.position == 0 ? 0.0f : kept[static_cast<int64_t>(i) * a.value_dim];

  const int key_head = a.key_heads_in_turn ? head % a.key_heads : head / (a.value_heads / a.key_heads);
  const int64_t keys = static_cast<int64_t>(key_head) * a.key_dim;
  const int64_t output_row = static_cast<int64_t>(a.value_heads) * a.value_dim;
  for (int64_t token = first_row; token < first_row + run.tokens; ++token) {
    const Global<const float> x = Global<const float>(a.x) + token * a.row;
    const int64_t gates = token * a.value_heads + head;
    const Global<const float> decays = Global<const float>(a.decay) + (a.decay_by_channel ? gates * a.key_dim : gates);
    const StateToken t = {.query = x + a.queries + keys,
                          .key = x + a.keys + keys,
                          .decays = decays,
                          .value = x[a.values + static_cast<int64_t>(head) * a.value_dim + column],
                          .decay = *decays,
                          .rate = Global<const float>(a.rate)[gates]};
    Global<float>(a.output)[token * output_row + static_cast<int64_t>(head) * a.value_dim + column] =
        a.skip != nullptr    ? StateSpaceOfColumn(a, t, own, columns, Global<const float>(a.skip)[head])
        : a.decay_by_channel ? DeltaRuleByChannelOfColumn(a, t, own, columns)
                             : DeltaRuleOfColumn(a, t, own, columns);
  }
  for (int i = 0; i < a.key_dim; ++i) kept[static_cast<int64_t>(i) * a.value_dim] = own[i * columns];
}

inline void LaunchStates(DeviceStream& stream, const cuda::StateOperation& operation) {
  if (operation.count == 0) return;
  const auto columns = static_cast<unsigned>(operation.columns);
  Launch<States>(stream,
                 {.grid = {static_cast<unsigned>(operation.count), static_cast<unsigned>(operation.value_heads),
                           Blocks(static_cast<unsigned>(operation.value_dim), columns)},
                  .block = {32},
                  .shared_bytes = static_cast<unsigned>(operation.key_dim * sizeof(float)) * columns},
                 operation);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
