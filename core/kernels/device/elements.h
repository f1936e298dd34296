// Operations whose every element stands for itself: a thread each.
#pragma once

#include "core/kernels/cuda/language.h"
#include "core/kernels/cuda_operations.h"
#include "core/kernels/device/activated.h"
#include "core/kernels/math.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

__device__ inline void Compute(const cuda::AddOperation& a, int64_t i) { Global<float>(a.y)[i] += Global<const float>(a.x)[i]; }

__device__ inline void Compute(const cuda::AddScaledOperation& a, int64_t i) {
  const Global<float> y(a.y);
  y[i] = fmaf(a.scale, Global<const float>(a.x)[i], y[i]);
}

__device__ inline void Compute(const cuda::ScaleOperation& a, int64_t i) { Global<float>(a.x)[i] *= a.scale; }

__device__ inline void Compute(const cuda::MultiplyOperation& a, int64_t i) {
  Global<float>(a.x)[i] *= Global<const float>(a.by)[i];
}

__device__ inline void Compute(const cuda::SigmoidGateOperation& a, int64_t i) {
  Global<float>(a.x)[i] *= Sigmoid(Global<const float>(a.gate)[i]);
}

__device__ inline void Compute(const cuda::SoftplusGateOperation& a, int64_t i) {
  Global<float>(a.x)[i] *= Softplus(Global<const float>(a.gates)[i / a.width]);
}

__device__ inline void Compute(const cuda::ActivateOperation& a, int64_t i) {
  Global<float>(a.out)[i] = Activated(a.activation, Global<const float>(a.gate), Global<const float>(a.up), i);
}

__device__ inline void Compute(const cuda::SoftCapOperation& a, int64_t i) {
  const Global<float> x(a.x);
  x[i] = a.cap * Tanh(x[i] / a.cap);
}

__device__ inline void Compute(const cuda::DeltaGatesOperation& a, int64_t i) {
  const Global<float> decay(a.a), rate(a.b);
  const int64_t of_head = i / a.decays, head = of_head % a.heads, channel = i % a.decays;
  const float bias = Global<const float>(a.bias)[head * a.decays + channel];
  decay[i] = Exp(Global<const float>(a.decay_rates)[head] * Softplus(decay[i] + bias));
  if (channel == 0) rate[of_head] = Sigmoid(rate[of_head]);
}

__device__ inline void Compute(const cuda::StepSizesOperation& a, int64_t i) {
  const Global<float> steps(a.steps);
  const int64_t head = i % a.heads;
  const float step = Softplus(steps[i] + Global<const float>(a.bias)[head]);
  steps[i] = step;
  Global<float>(a.decays)[i] = Exp(Global<const float>(a.decay_rates)[head] * step);
}

__device__ inline void Compute(const cuda::GatherOperation& a, int64_t i) {
  const int64_t to = i / a.words, from = Global<const int32_t>(a.rows)[to];
  int64_t word = i % a.words;
  MOED_UNROLL
  for (int number = 0; number < cuda::GatherOperation::kParts; ++number) {
    const cuda::GatherOperation::Part& part = a.parts[number];
    if (word >= 0 && word < part.words) {
      Global<uint32_t>(part.to)[to * part.words + word] = Global<const uint32_t>(part.from)[from * part.words + word];
    }
    word -= part.words;
  }
}

__device__ inline void Compute(const cuda::FinishProductsOperation& a, int64_t i) {
  const int64_t token = i / a.rows, row = i % a.rows;
  const float product = Global<const float>(a.products)[i];
  const float sum = product * Global<const float>(a.weight_inverses)[row] * Global<const float>(a.input_inverses)[token];
  const float biased = a.bias == nullptr ? sum : sum + Global<const float>(a.bias)[row];
  const Global<float> y = Global<float>(a.output) + token * a.output_stride + row;
  *y = a.adds ? fmaf(a.scale, biased, *y) : a.scale * biased;
}

// A channel of a run: its rows, then what its next run begins with.
__device__ inline void Compute(const cuda::ConvolveOperation& a, int64_t i) {
  const int64_t channel = i % a.channels;
  const StateRun run = Global<const StateRun>(a.runs)[i / a.channels];
  const int64_t first = Global<const int64_t>(a.first_rows)[i / a.channels] * a.channels + channel;
  const Global<const float> x = Global<const float>(a.x) + first;
  const Global<const float> weights = Global<const float>(a.weights) + channel;
  const Global<float> y = Global<float>(a.y) + first;
  const Global<float> state = Global<float>(run.state) + channel;
  const auto input = [&](int64_t row) -> float {
    if (row >= 0) return x[row * a.channels];
    return run.position == 0 ? 0.0f : static_cast<float>(state[(a.taps - 1 + row) * a.channels]);
  };
  for (int64_t row = 0; row < run.tokens; ++row) {
    float sum = a.bias == nullptr ? 0.0f : Global<const float>(a.bias)[channel];
    for (int tap = 0; tap < a.taps; ++tap) sum += weights[tap * a.channels] * input(row - (a.taps - 1) + tap);
    y[row * a.channels] = a.silu ? sum * Sigmoid(sum) : sum;
  }
  // Ascending: what is still to be copied lies behind.
  for (int kept = 0; kept < a.taps - 1; ++kept) state[kept * a.channels] = input(run.tokens - (a.taps - 1) + kept);
}

template <class Operation>
__global__ void ComputeElements(Operation operation) {
  JoinLaunches();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < operation.n) Compute(operation, i);
}

template <class Operation>
void LaunchElements(DeviceStream& stream, const Operation& operation) {
  constexpr unsigned kThreads = 128;
  if (operation.n == 0) return;
  const auto blocks = static_cast<unsigned>((operation.n + kThreads - 1) / kThreads);
  Launch<ComputeElements<Operation>>(stream, {.grid = {blocks}, .block = {kThreads}}, operation);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
