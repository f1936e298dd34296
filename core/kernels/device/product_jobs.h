// The jobs of a launch of products: which one a block of threads works for, and what becomes of its sums.
#pragma once

#include <cstddef>

#include "core/kernels/cuda_kernel_set.h"
#include "core/kernels/device/lane_sums.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

__device__ inline int FirstGroupOf(Global<const cuda::ProductJob> job) {
  return Load<int>(PointerCast<const unsigned char>(job) + offsetof(cuda::ProductJob, first_group), 0);
}

// Of the launch, the job that this group of panels is of; by whole warps, which look at 32 at a time.
__device__ inline cuda::ProductJob JobOfGroup(const cuda::ProductsOperation& a, int group) {
  const Global<const cuda::ProductJob> jobs(a.jobs);
  const int lane = threadIdx.x % 32;
  int begun = 0;  // jobs that begin at this group or before
  for (int first = 0; first < a.count; first += 32) {
    const bool before = first + lane < a.count && FirstGroupOf(jobs + first + lane) <= group;
    begun += __popc(__ballot_sync(kEveryLane, before));
  }
  return jobs[begun - 1];
}

// What an earlier kernel chose says which matrix it is.
__device__ inline cuda::ProductJob WithChoice(cuda::ProductJob job) {
  if (job.choice == nullptr) return job;
  const ExpertChoice choice = Global<const ExpertChoice>(job.choice)[0];
  job.weights = Global<const unsigned char* const>(job.matrices)[choice.expert];
  if (job.bias != nullptr) job.bias += static_cast<int64_t>(choice.expert) * job.rows;
  return job;
}

// What of a launch a block of threads multiplies: blocks of the format in panels that follow each other.
struct FewPanels {
  int first, count;  // panels
  int blocks;        // of the format, in a row
  __device__ int all() const { return count * blocks; }
};

// What the job makes of a row's sum, if it has that row.
__device__ inline void FinishRow(const cuda::ProductJob& job, int64_t token, int row, float sum) {
  if (row >= job.rows) return;
  const Global<float> y = Global<float>(job.output) + token * job.output_stride + row;
  if (job.bias != nullptr) sum = sum + Global<const float>(job.bias)[row];
  y[0] = job.adds ? fmaf(job.scale, sum, y[0]) : job.scale * sum;
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
