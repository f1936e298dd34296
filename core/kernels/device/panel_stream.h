// A warp's panel on its way from global to shared memory, a chunk after the other: neighbouring lanes bring neighbouring 16
// bytes. While a chunk is computed with, the next is already on its way, in registers.
#pragma once

#include "core/kernels/cuda/language.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr int kChunkBytes = 2048;  // about as many

// kBytes: of a format's block. Those of 8 r bytes put the panels behind the first one where 16 bytes cannot be read at once.
template <int kBytes>
class PanelStream {
 public:
  using Unit = std::conditional_t<kBytes % sizeof(uint4) == 0, uint4, uint2>;
  static constexpr int kBlocks = kBytes < kChunkBytes ? kChunkBytes / kBytes : 1;  // of a chunk
  static constexpr int kSharedBytes = (kBlocks * kBytes + 15) / 16 * 16;

  // From block `first` of the panel on.
  __device__ void Fetch(Global<const unsigned char> panel, int first, int blocks) {
    const Global<const unsigned char> from = panel + static_cast<int64_t>(first) * kBytes;
    const int units = blocks * (kBytes / static_cast<int>(sizeof(Unit))), lane = threadIdx.x % 32;
    MOED_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      if (32 * i + lane < units) held_[i] = LoadOnce<Unit>(from, 32 * i + lane);
    }
  }
  __device__ void Put(Shared<unsigned char> to, int blocks) const {
    const int units = blocks * (kBytes / static_cast<int>(sizeof(Unit))), lane = threadIdx.x % 32;
    MOED_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      if (32 * i + lane < units) Store(to, 32 * i + lane, held_[i]);
    }
  }

 private:
  static_assert(kBytes % sizeof(Unit) == 0);
  static constexpr int kUnits = (kBlocks * kBytes / static_cast<int>(sizeof(Unit)) + 31) / 32;
  Unit held_[kUnits];
};

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
