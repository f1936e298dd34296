// Products of few tokens, as decoding has them. A block of threads takes a panel of 8 rows, or a few short ones that follow each
// other, and brings their bytes to shared memory together; integer_sums.h and float_sums.h say how it adds.
#pragma once

#include "core/kernels/device/panel_chunks.h"
#include "core/kernels/device/product_jobs.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

// Descriptions and weights are from before the launches that this one follows: unless one of these chooses the matrix, its first
// bytes are on their way while they end.
template <class Layout, class Sums>
__global__ void __launch_bounds__(kChunkThreads, Sums::kTogether) ProductsOfFew(cuda::ProductsOperation a) {
  using Chunks = typename Sums::Chunks;
  const cuda::ProductJob described = JobOfGroup(a, static_cast<int>(blockIdx.x));
  const bool chosen = described.choice != nullptr;
  if (chosen) JoinLaunches();
  const cuda::ProductJob job = WithChoice(described);
  const int first_panel = (static_cast<int>(blockIdx.x) - job.first_group) * job.panels;
  const FewPanels panels = {.first = first_panel,
                            .count = min(job.panels, (job.rows + kPanelRows - 1) / kPanelRows - first_panel),
                            .blocks = job.blocks * kBlockColumns / Layout::kColumns};
  const Global<const unsigned char> weights =
      Global<const unsigned char>(job.weights) + static_cast<int64_t>(first_panel) * panels.blocks * Layout::kBytes;
  Sums sums(job, panels, Chunks::kSharedBytes);
  Chunks chunks;
  const auto count_of = [&](int first) { return min(Chunks::kBlocks, panels.all() - first); };
  chunks.Fetch(weights, 0, count_of(0));
  if (!chosen) JoinLaunches();
  sums.Fetch(0, count_of(0));
  for (int first = 0; first < panels.all(); first += Chunks::kBlocks) {
    const int count = count_of(first), next = first + count;
    __syncthreads();
    const Shared<const unsigned char> staged = chunks.Put(SharedMemory<unsigned char>(), count);
    sums.Put(count);
    if (next < panels.all()) chunks.Fetch(weights, next, count_of(next));
    __syncthreads();
    sums.Add(staged, first, count);
    if (next < panels.all()) sums.Fetch(next, count_of(next));
  }
  sums.Finish();
}

template <class Layout, class Sums>
void LaunchProductsOfFew(DeviceStream& stream, const cuda::ProductsOperation& a) {
  Launch<ProductsOfFew<Layout, Sums>>(stream,
                                      {.grid = {static_cast<unsigned>(a.groups)},
                                       .block = {kChunkThreads},
                                       .shared_bytes = Sums::Chunks::kSharedBytes + Sums::kSharedBytes},
                                      a);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
