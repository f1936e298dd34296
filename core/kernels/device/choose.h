// The choice of router_choice.h by a warp. An expert's lane is its number mod 32. Only numbers can be compared in any order:
// where a key is none, one lane does what the definition says.
#pragma once

#include <cstdint>

#include "core/kernels/device/lane_sums.h"
#include "core/kernels/router_choice.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

// The row's scores and corrections lie in shared memory, and what its warp needs beside them.
struct RouterRow {
  routing::ScoredRow<Shared<float>, Shared<const float>> row;
  Shared<unsigned> keys;         // (experts), in the order of their keys; 0: cannot be chosen
  Shared<float> group_keys;      // (kMostGroups)
  Shared<float> weights;         // (top_k)
  Shared<ExpertChoice> chosen;   // (top_k), highest key first
  Shared<ExpertChoice> choices;  // (top_k)

  __device__ int experts() const { return row.shape.experts; }
  __device__ int top_k() const { return row.shape.top_k; }
  __device__ bool Keeps(uint64_t kept, int expert) const {
    return row.shape.kept_groups == row.shape.groups || (kept >> (expert / row.group_size()) & 1) != 0;
  }
};

// To r.group_keys: as many lanes for each group as there are.
__device__ inline void FindGroupKeys(const RouterRow& r) {
  const int groups = r.row.shape.groups, size = r.row.group_size(), lane = threadIdx.x % 32;
  int lanes = 32;
  while (lanes > 1 && lanes * groups > 32) lanes /= 2;
  for (int first = 0; first < groups; first += 32 / lanes) {
    const int group = first + lane / lanes;
    routing::LargestKeys largest;
    for (int i = lane % lanes; group < groups && i < size; i += lanes) largest.Add(r.row.Key(group * size + i));
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      const float one = __shfl_xor_sync(kEveryLane, largest.first, distance);
      const float other = __shfl_xor_sync(kEveryLane, largest.second, distance);
      largest.Add(one);
      largest.Add(other);
    }
    if (group < groups && lane % lanes == 0) r.group_keys[group] = r.row.GroupKey(largest);
  }
  __syncwarp();
}

// A bit for each group that is kept. False: a group's key is no number.
__device__ inline bool FindKeptGroups(const RouterRow& r, uint64_t& kept) {
  const int groups = r.row.shape.groups, lane = threadIdx.x % 32;
  kept = 0;
  if (r.row.shape.kept_groups == groups) return true;
  FindGroupKeys(r);
  bool number = true;
  for (int first = 0; first < groups; first += 32) {
    const int group = first + lane;
    int before = 0;
    if (group < groups) {
      const float key = r.group_keys[group];
      number = number && key == key;
      for (int i = 0; i < groups; ++i) {
        const float other = r.group_keys[i];
        before += other > key || (other == key && i < group) ? 1 : 0;
      }
    }
    kept |= static_cast<uint64_t>(__ballot_sync(kEveryLane, group < groups && before < r.row.shape.kept_groups)) << first;
  }
  return __all_sync(kEveryLane, number);
}

// The best of a lane's experts that can be chosen.
struct BestOfLane {
  unsigned key = 0;
  int expert = INT32_MAX;

  __device__ void Add(unsigned other, int number) {
    if (other <= key) return;
    key = other;
    expert = number;
  }
};

// To r.chosen. False: a key is no number.
__device__ inline bool FindHighestKeys(const RouterRow& r) {
  uint64_t kept;
  if (!FindKeptGroups(r, kept)) return false;
  const int lane = threadIdx.x % 32;
  BestOfLane best;
  bool number = true;
  for (int expert = lane; expert < r.experts(); expert += 32) {
    const float key = r.row.Key(expert);
    number = number && key == key;
    const unsigned order = r.Keeps(kept, expert) ? OrderOf(key == 0 ? 0.0f : key) : 0;
    r.keys[expert] = order;
    best.Add(order, expert);
  }
  if (!__all_sync(kEveryLane, number)) return false;
  for (int slot = 0; slot < r.top_k(); ++slot) {
    const unsigned highest = __reduce_max_sync(kEveryLane, best.key);
    const int expert = __reduce_min_sync(kEveryLane, best.key == highest ? best.expert : INT32_MAX);
    if (best.expert != expert) continue;
    r.chosen[slot] = ExpertChoice{.expert = expert};
    r.keys[expert] = 0;
    best = {};
    for (int i = lane; i < r.experts(); i += 32) best.Add(r.keys[i], i);
  }
  __syncwarp();
  return true;
}

// To r.choices, from r.chosen: with their weights, highest first. False: a weight is no number.
__device__ inline bool WeighChoices(const RouterRow& r) {
  const int lane = threadIdx.x % 32;
  bool number = true;
  for (int slot = lane; slot < r.top_k(); slot += 32) {
    const float score = r.row.scores[static_cast<ExpertChoice>(r.chosen[slot]).expert];
    const float weight = routing::WeightOf(r.row, r.chosen, slot, score);
    number = number && weight == weight;
    r.weights[slot] = weight;
  }
  __syncwarp();
  if (!__all_sync(kEveryLane, number)) return false;
  for (int slot = lane; slot < r.top_k(); slot += 32) {
    const float weight = r.weights[slot];
    int before = 0;
    for (int i = 0; i < r.top_k(); ++i) {
      const float other = r.weights[i];
      before += other > weight || (other == weight && i < slot) ? 1 : 0;
    }
    r.choices[before] = ExpertChoice{static_cast<ExpertChoice>(r.chosen[slot]).expert, weight};
  }
  __syncwarp();
  return true;
}

// routing::Choose to r.choices, where every lane may read them.
__device__ inline void Choose(const RouterRow& r) {
  const int lane = threadIdx.x % 32;
  if (!FindHighestKeys(r) || !WeighChoices(r)) {
    if (lane == 0) routing::Choose(r.row, r.choices);
    __syncwarp();
    return;
  }
  if (!r.row.shape.normalize) return;
  const float sum = routing::SumOfWeights(r.row, r.choices);
  __syncwarp();
  for (int slot = lane; slot < r.top_k(); slot += 32) routing::DivideWeight(r.choices, slot, sum);
  __syncwarp();
}

// routing::Rank, an expert's score by its own lane.
__device__ inline void Rank(const RouterRow& r) {
  if (!routing::RanksByKey(r.row)) return;
  const int lane = threadIdx.x % 32;
  uint64_t kept;
  if (!FindKeptGroups(r, kept)) {
    if (lane == 0) routing::Rank(r.row);
    __syncwarp();
    return;
  }
  routing::KeyRange range;
  for (int expert = lane; expert < r.experts(); expert += 32) {
    const float key = r.Keeps(kept, expert) ? r.row.Key(expert) : routing::kNever;
    r.row.scores[expert] = key;
    range.Add(key);
  }
  range.highest = LargestOfWarp(range.highest);
  range.lowest = -LargestOfWarp(-range.lowest);
  for (int expert = lane; expert < r.experts(); expert += 32) r.row.scores[expert] = range.RankOf(r.row.scores[expert]);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
