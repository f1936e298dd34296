// Sums of few tokens' products with rows of floats: a lane has one of the eight partial sums of two neighbouring rows, so a warp
// has a panel's, for one token or two. Where there is one token its columns are brought to shared memory with the weights.
#pragma once

#include "core/kernels/device/panel_chunks.h"
#include "core/kernels/device/product_jobs.h"
#include "core/kernels/device/weights.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

template <class Layout, int kMostTokens>
struct FloatSums {
  static constexpr int kSteps = Layout::kColumns / kPartialSums;  // of a block
  static constexpr int kWarps = kChunkThreads / 32;
  static constexpr bool kStages = kMostTokens == 1;
  static constexpr int kOwn = kStages ? 1 : kMostTokens / kWarps;  // tokens of a strand, which is a warp's
  static constexpr int kMostRows = kPanelRows * (kStages ? cuda::kMostPanels : kMostTokens);
  static constexpr int kTogether = 6;  // blocks of threads that a multiprocessor has registers for
  using Chunks = ChunksOfFew<Layout::kBytes>;
  static constexpr int kColumns = Chunks::kBlocks * Layout::kColumns;  // of a chunk
  static constexpr int kHeld = kStages ? (kColumns + kChunkThreads - 1) / kChunkThreads : 1;
  static constexpr int kPartials = kPartialSums * kMostRows;
  static constexpr unsigned kPartialBytes = kPartials * sizeof(float);
  static constexpr unsigned kSharedBytes = kPartialBytes + (kStages ? kColumns * sizeof(float) : 0);
  static_assert(kStages || kOwn * kWarps == kMostTokens);

  const cuda::ProductJob& job;
  const FewPanels& panels;
  const Shared<float> partials, staged_x;
  float held[kHeld];

  __device__ FloatSums(const cuda::ProductJob& its_job, const FewPanels& its_panels, unsigned shared)
      : job(its_job),
        panels(its_panels),
        partials(SharedMemory<float>(shared)),
        staged_x(SharedMemory<float>(shared + kPartialBytes)) {
    for (int i = threadIdx.x; i < kPartials; i += kChunkThreads) partials[i] = 0.0f;
  }

  // Of panels, or of tokens.
  __device__ int rows() const { return kPanelRows * (kStages ? panels.count : job.tokens); }
  __device__ int row() const { return 2 * (threadIdx.x % 4); }
  __device__ int partial() const { return static_cast<int>(threadIdx.x) % 32 / 4; }

  // Short panels have the columns in common.
  __device__ int ColumnsOf(int count) const { return (panels.count == 1 ? count : panels.blocks) * Layout::kColumns; }
  __device__ Global<const float> ColumnsFrom(int token, int first) const {
    const int64_t rows = static_cast<int64_t>(token) * job.blocks * kBlockColumns;
    return Global<const float>(job.values) + (rows + (panels.count == 1 ? first * Layout::kColumns : 0));
  }
  __device__ void Fetch(int first, int count) {
    if constexpr (kStages) {
      const Global<const float> from = ColumnsFrom(0, first);
      MOED_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        const int column = kChunkThreads * i + static_cast<int>(threadIdx.x);
        if (column < ColumnsOf(count)) held[i] = from[column];
      }
    }
  }
  __device__ void Put(int count) const {
    if constexpr (kStages) {
      MOED_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        const int column = kChunkThreads * i + static_cast<int>(threadIdx.x);
        if (column < ColumnsOf(count)) staged_x[column] = held[i];
      }
    }
  }

  // Warps have other strands from chunk to chunk: each has but a part of the multiprocessor's schedulers, and strands may be
  // fewer than warps. Where tokens are no multiple of a strand's, the last one is computed again instead of those that are
  // missing. Several columns are read before they are added.
  __device__ void Add(Shared<const unsigned char> staged, int first, int count) const {
    constexpr int kAhead = 4;
    static_assert(kSteps % kAhead == 0);
    const int strand = (static_cast<int>(threadIdx.x) / 32 + first / Chunks::kBlocks) % kWarps, columns = ColumnsOf(count);
    if (strand * kOwn * kPanelRows >= rows()) return;
    const auto weights = kStages ? staged + strand * (columns / Layout::kColumns * Layout::kBytes) : staged;
    float2 sums[kOwn];
    MOED_UNROLL
    for (int own = 0; own < kOwn; ++own) sums[own] = {Partial(kOwn * strand + own, 0), Partial(kOwn * strand + own, 1)};
    for (int step = 0; step < columns / kPartialSums; step += kAhead) {
      const auto block = BytesAt(weights + step / kSteps * Layout::kBytes);
      float2 weight[kAhead];
      float by[kOwn][kAhead];
      MOED_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        weight[k] = Layout::TwoWeights(block, (step % kSteps + k) * kPartialSums + partial(), row());
        MOED_UNROLL
        for (int own = 0; own < kOwn; ++own) {
          by[own][k] = Column(min(kOwn * strand + own, job.tokens - 1), first, (step + k) * kPartialSums + partial());
        }
      }
      MOED_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        MOED_UNROLL
        for (int own = 0; own < kOwn; ++own) {
          sums[own].x = fmaf(weight[k].x, by[own][k], sums[own].x);
          sums[own].y = fmaf(weight[k].y, by[own][k], sums[own].y);
        }
      }
    }
    MOED_UNROLL
    for (int own = 0; own < kOwn; ++own) {
      Partial(kOwn * strand + own, 0) = sums[own].x;
      Partial(kOwn * strand + own, 1) = sums[own].y;
    }
  }
  __device__ float Column(int token, int first, int column) const {
    if constexpr (kStages) return staged_x[column];
    return ColumnsFrom(token, first)[column];
  }
  // The lane's own, of the first or the second of its rows.
  __device__ decltype(auto) Partial(int panel_or_token, int second) const {
    return partials[(kPanelRows * panel_or_token + row() + second) * kPartialSums + partial()];
  }

  __device__ void Finish() const {
    __syncthreads();
    for (int i = threadIdx.x; i < rows(); i += blockDim.x) {
      const int token = kStages ? 0 : i / kPanelRows;
      FinishRow(job, token, kPanelRows * (panels.first - token) + i,
                SumOfPartials(Shared<const float>(partials) + i * kPartialSums));
    }
  }
};

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
