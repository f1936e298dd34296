// Routers: a block of threads for each row. Its scores are made by all threads and chosen among by the first warp, in shared
// memory: logits may lie in the host's, and are read and written once.
#pragma once

#include "core/kernels/device/choose.h"
#include "core/kernels/device/norms.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr int kMostRouterThreads = 128;

// Where in shared memory, in floats, a router's arrays lie: behind what sums take.
struct RouterLayout {
  int scores;
  int corrections;
  int keys;
  int group_keys;
  int weights;
  int chosen;
  int choices;
  int floats;

  constexpr RouterLayout(const RouterShape& shape, int threads)
      : scores(RowFloats(shape.experts, threads)),
        corrections(scores + shape.experts),
        keys(corrections + (shape.correction == nullptr ? 0 : shape.experts)),
        group_keys(keys + shape.experts),
        weights(group_keys + (shape.groups == 1 ? 0 : shape.groups)),
        chosen(weights + shape.top_k),
        choices(chosen + 2 * shape.top_k),
        floats(choices + 2 * shape.top_k) {}
};

// put(expert, score), by the whole block. What no softmax makes of a sparsemixer's logits when it chooses, it makes when it
// ranks: the softmax keeps their order.
template <class Put>
__device__ inline void ScoreRow(const cuda::RouteOperation& a, HeldRow<float>& x, const Put& put) {
  const bool ranks = a.choices == nullptr, sigmoid = a.shape.scoring == RouterScoring::kSigmoid;
  if (a.shape.scoring == RouterScoring::kSoftmax || (ranks && !sigmoid)) return SoftmaxOfRow(x, a.shape.experts, put);
  ForColumns(a.shape.experts, [&](OwnColumn column) { put(column.index, sigmoid ? Sigmoid(x(column)) : x(column)); });
}

__global__ void __launch_bounds__(kMostRouterThreads, 1) Route(cuda::RouteOperation a) {
  JoinLaunches();
  const int experts = a.shape.experts, lane = threadIdx.x;
  const Global<float> logits = Global<float>(a.logits) + static_cast<int64_t>(blockIdx.x) * experts;
  const RouterLayout at(a.shape, static_cast<int>(blockDim.x));
  const Shared<float> scores = SharedMemory<float>() + at.scores, corrections = SharedMemory<float>() + at.corrections;
  const Global<const float> correction(a.shape.correction);
  HeldRow<float> x(logits, experts);
  if (correction != nullptr) {
    const HeldRow<const float> held(correction, experts);
    ForColumns(experts, [&](OwnColumn column) { corrections[column.index] = held(column); });
  }
  ScoreRow(a, x, [&](int i, float score) {
    scores[i] = score;
    if (a.choices != nullptr) logits[i] = score;
  });
  __syncthreads();
  if (lane >= 32) return;

  const RouterRow row{{a.shape, scores, correction == nullptr ? Shared<const float>(nullptr) : Shared<const float>(corrections)},
                      PointerCast<unsigned>(SharedMemory<float>() + at.keys),
                      SharedMemory<float>() + at.group_keys,
                      SharedMemory<float>() + at.weights,
                      PointerCast<ExpertChoice>(SharedMemory<float>() + at.chosen),
                      PointerCast<ExpertChoice>(SharedMemory<float>() + at.choices)};
  if (a.choices == nullptr) {
    Rank(row);
    for (int i = lane; i < experts; i += 32) logits[i] = static_cast<float>(scores[i]);
    return;
  }
  Choose(row);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * a.shape.top_k;
  for (int i = lane; i < a.shape.top_k; i += 32) {
    const ExpertChoice choice = row.choices[i];
    Global<ExpertChoice>(a.choices)[first + i] = choice;
    if (a.choices_on_host != nullptr) Global<ExpertChoice>(a.choices_on_host)[first + i] = choice;
  }
}

// As few threads as hold the row: up to 256 experts are a warp's.
inline void LaunchRoute(DeviceStream& stream, const cuda::RouteOperation& a) {
  if (a.rows == 0) return;
  const int threads = ThreadsOfRow(a.shape.experts, kHeldColumns, kMostRouterThreads);
  Launch<Route>(stream,
                {.grid = {static_cast<unsigned>(a.rows)},
                 .block = {static_cast<unsigned>(threads)},
                 .shared_bytes = static_cast<unsigned>(RouterLayout(a.shape, threads).floats * sizeof(float))},
                a);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
