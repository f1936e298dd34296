// Routers: a block of threads for each row. Its scores are made by all threads and chosen among by one.
#pragma once

#include "core/kernels/device/norms.h"
#include "core/kernels/router_choice.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

// What no softmax makes of a sparsemixer's logits when it chooses, it makes when it ranks: the softmax keeps their order.
__device__ inline void ScoreRow(const cuda::RouteOperation& a, Global<float> logits) {
  const bool ranks = a.choices == nullptr;
  if (a.shape.scoring == RouterScoring::kSigmoid) {
    for (int i = threadIdx.x; i < a.shape.experts; i += blockDim.x) logits[i] = Sigmoid(logits[i]);
  } else if (a.shape.scoring == RouterScoring::kSoftmax || ranks) {
    SoftmaxOfRow(logits, a.shape.experts);
  }
}

// Shared memory: what sums take, or the scores and behind them the choices.
__global__ void Route(cuda::RouteOperation a) {
  const int experts = a.shape.experts, top_k = a.shape.top_k, thread = threadIdx.x, threads = blockDim.x;
  const Global<float> logits = Global<float>(a.logits) + static_cast<int64_t>(blockIdx.x) * experts;
  ScoreRow(a, logits);
  const Shared<float> scores = SharedMemory<float>();
  const Shared<ExpertChoice> choices = SharedMemory<ExpertChoice>((experts + 1) / 2 * 2 * sizeof(float));
  for (int i = thread; i < experts; i += threads) scores[i] = static_cast<float>(logits[i]);
  __syncthreads();
  const routing::ScoredRow<Shared<float>, Global<const float>> row{a.shape, scores, Global<const float>(a.shape.correction)};
  if (thread == 0 && a.choices == nullptr) routing::Rank(row);
  if (thread == 0 && a.choices != nullptr) routing::Choose(row, choices);
  __syncthreads();
  if (a.choices == nullptr) {
    for (int i = thread; i < experts; i += threads) logits[i] = static_cast<float>(scores[i]);
    return;
  }
  const int64_t first = static_cast<int64_t>(blockIdx.x) * top_k;
  for (int i = thread; i < top_k; i += threads) {
    const ExpertChoice choice = choices[i];
    Global<ExpertChoice>(a.choices)[first + i] = choice;
    if (a.choices_on_host != nullptr) Global<ExpertChoice>(a.choices_on_host)[first + i] = choice;
  }
}

inline void LaunchRoute(DeviceStream& stream, const cuda::RouteOperation& a) {
  if (a.rows == 0) return;
  const auto row = static_cast<unsigned>((a.shape.experts + 1) * sizeof(float) + a.shape.top_k * sizeof(ExpertChoice));
  Launch<Route>(
      stream, {.grid = {static_cast<unsigned>(a.rows)}, .block = {kRowThreads}, .shared_bytes = std::max(row, kLaneSumBytes)}, a);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
