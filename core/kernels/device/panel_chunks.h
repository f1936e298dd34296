// The bytes of panels that follow each other on their way from global to shared memory, a chunk after the other: neighbouring
// threads bring neighbouring 16 bytes. While a chunk is computed with, the next is on its way, in registers.
#pragma once

#include <algorithm>

#include "core/kernels/cuda/language.h"
#include "core/kernels/cuda_kernel_set.h"
#include "core/kernels/device/held_row.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

// kBytes: of a format's block, a multiple of 8; kMostBlocks: of a chunk; Owners, kThreads of them: who bring chunks and have them
// together. Where blocks are no multiples of 16 bytes a chunk may begin between two units of 16 bytes; then it is brought from
// the unit on in which it begins, which is the matrix's.
template <int kBytes, int kMostBlocks, class Owners, int kThreads>
class PanelChunks {
  static constexpr int kUnit = sizeof(uint4), kHalf = sizeof(uint2);
  static constexpr bool kByHalves = kBytes % kUnit != 0;
  static_assert(kBytes % kHalf == 0);
  static_assert(!kByHalves || kMostBlocks % 2 == 0);  // a chunk begins between two units only where its panel does

 public:
  static constexpr int kBlocks = kMostBlocks;
  static constexpr int kSharedBytes = kBlocks * kBytes + (kByHalves ? kUnit : 0);

  // `blocks` from `first` on.
  __device__ void Fetch(Global<const unsigned char> weights, int first, int blocks) {
    Global<const unsigned char> from = weights + static_cast<int64_t>(first) * kBytes;
    skew_ = kByHalves ? static_cast<int>(AddressOf(from) % kUnit) : 0;
    from = from - skew_;
    const int end = skew_ + blocks * kBytes;
    MOED_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      const int unit = UnitOf(i);
      if ((unit + 1) * kUnit <= end) {
        held_[i] = LoadOnce<uint4>(from, unit);
      } else if (kByHalves && unit * kUnit < end) {
        const uint2 half = LoadOnce<uint2>(from, 2 * unit);
        held_[i] = {half.x, half.y, 0, 0};
      }
    }
  }
  // What was fetched last; where its first block then is.
  __device__ Shared<const unsigned char> Put(Shared<unsigned char> to, int blocks) const {
    MOED_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      if (UnitOf(i) * kUnit < skew_ + blocks * kBytes) Store(to, UnitOf(i), held_[i]);
    }
    return to + skew_;
  }

 private:
  static constexpr int kUnits = (kSharedBytes / kUnit + kThreads - 1) / kThreads;
  static __device__ int UnitOf(int i) { return kThreads * i + Owners::thread(); }

  uint4 held_[kUnits];
  int skew_ = 0;
};

// By a block of threads, of few tokens' products: as many as fit, since short panels share one (PanelsOfBlock).
constexpr int kChunkThreads = 128;
constexpr int BlocksOfFew(int bytes) {
  return bytes % 16 == 0 ? cuda::kFewProductBytes / bytes : (cuda::kFewProductBytes - 8) / (2 * bytes) * 2;
}
template <int kBytes>
using ChunksOfFew = PanelChunks<kBytes, BlocksOfFew(kBytes), OfBlock, kChunkThreads>;

// By a warp: about 2048 bytes that are whole sectors of memory.
constexpr int BlocksOfWarp(int bytes) {
  const int together = bytes % 16 != 0 ? 4 : bytes % 32 != 0 ? 2 : 1;
  return std::max(1, 2048 / bytes / together) * together;
}
template <int kBytes>
using ChunksOfWarp = PanelChunks<kBytes, BlocksOfWarp(kBytes), OfWarp, 32>;

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
