// Sums of few tokens' products with rows of floats: a lane has one of a row's eight partial sums, so two warps have a panel's.
// Those of strand number warp, warp + 4, ... are a warp's: a half of the partial sums of a panel and a token. Where there is one
// token its columns are brought to shared memory with the weights.
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
  static constexpr int kHalves = 2;
  static constexpr int kWarps = kChunkThreads / 32;
  static constexpr int kMostPanels = kMostTokens == 1 ? cuda::kMostPanels : 1;
  static constexpr int kOwn = kHalves * kMostPanels * kMostTokens / kWarps;
  static constexpr int kTogether = 6;  // blocks of threads that a multiprocessor has registers for
  using Chunks = ChunksOfFew<Layout::kBytes>;
  static constexpr bool kStages = kMostTokens == 1;
  static constexpr int kColumns = Chunks::kBlocks * Layout::kColumns;  // of a chunk
  static constexpr int kHeld = kStages ? (kColumns + kChunkThreads - 1) / kChunkThreads : 1;
  static constexpr unsigned kPartialBytes = kMostPanels * kMostTokens * kPartialSums * kPanelRows * sizeof(float);
  static constexpr unsigned kSharedBytes = kPartialBytes + (kStages ? kColumns * sizeof(float) : 0);
  static_assert(kOwn * kWarps == kHalves * kMostPanels * kMostTokens);

  const cuda::ProductJob& job;
  const FewPanels& panels;
  const Shared<float> partials, staged_x;
  float sums[kOwn] = {}, held[kHeld];

  __device__ FloatSums(const cuda::ProductJob& its_job, const FewPanels& its_panels, unsigned shared)
      : job(its_job),
        panels(its_panels),
        partials(SharedMemory<float>(shared)),
        staged_x(SharedMemory<float>(shared + kPartialBytes)) {}

  __device__ int row() const { return threadIdx.x % kPanelRows; }
  // What strand `own` of this warp is.
  __device__ int strand(int own) const { return static_cast<int>(threadIdx.x) / 32 + kWarps * own; }
  __device__ int partial(int own) const { return static_cast<int>(threadIdx.x) % 32 / kPanelRows + 4 * (strand(own) % kHalves); }
  __device__ int panel(int own) const { return strand(own) / kHalves % panels.count; }
  __device__ int token(int own) const { return strand(own) / kHalves / panels.count; }

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

  __device__ void Add(Shared<const unsigned char> staged, int first, int count) {
    const int columns = ColumnsOf(count);
    MOED_UNROLL
    for (int own = 0; own < kOwn; ++own) {
      if (token(own) >= job.tokens) continue;
      const Shared<const unsigned char> weights = staged + panel(own) * (columns / Layout::kColumns * Layout::kBytes);
      if constexpr (kStages) {
        AddColumns(weights, Shared<const float>(staged_x) + partial(own), partial(own), columns, sums[own]);
      } else {
        AddColumns(weights, ColumnsFrom(token(own), first) + partial(own), partial(own), columns, sums[own]);
      }
    }
  }

  // Several columns are read before they are added.
  template <class Columns>
  __device__ void AddColumns(Shared<const unsigned char> weights, Columns x, int partial, int columns, float& sum) const {
    constexpr int kAhead = 8;
    const int steps = columns / kPartialSums;
    for (int step = 0; step < steps; step += kAhead) {
      float weight[kAhead], by[kAhead];
      MOED_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        if (step + k >= steps) continue;
        const auto block = BytesAt(weights + (step + k) / kSteps * Layout::kBytes);
        weight[k] = Layout::Weight(block, (step + k) % kSteps * kPartialSums + partial, row());
        by[k] = x[(step + k) * kPartialSums];
      }
      MOED_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        if (step + k < steps) sum = fmaf(weight[k], by[k], sum);
      }
    }
  }

  __device__ void Finish() const {
    MOED_UNROLL
    for (int own = 0; own < kOwn; ++own) {
      if (token(own) >= job.tokens) continue;
      const int of_rows = (token(own) * panels.count + panel(own)) * kPanelRows + row();
      partials[of_rows * kPartialSums + partial(own)] = sums[own];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kPanelRows * panels.count * job.tokens; i += blockDim.x) {
      const int token = i / (kPanelRows * panels.count), of_panels = i % (kPanelRows * panels.count);
      FinishRow(job, token, kPanelRows * panels.first + of_panels,
                SumOfPartials(Shared<const float>(partials) + i * kPartialSums));
    }
  }
};

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
