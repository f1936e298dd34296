// A warp's panel on its way from global to shared memory, a chunk after the other: neighbouring lanes bring neighbouring 16
// bytes. While a chunk is computed with, the next is already on its way, in registers.
#pragma once

#include "core/kernels/cuda/language.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr int kChunkBytes = 2048;  // about as many

// kBytes: of a format's block, a multiple of 8. Chunks are whole sectors of memory. Where blocks are no multiples of 16 bytes and
// a panel has an odd number of them, every second panel begins between two units of 16 bytes; it comes by halves.
template <int kBytes>
class PanelStream {
  static constexpr int kSector = 32, kUnit = sizeof(uint4), kHalf = sizeof(uint2);
  static constexpr bool kByHalves = kBytes % kUnit != 0;
  static constexpr int kTogether = kByHalves ? 4 : kBytes % kSector != 0 ? 2 : 1;  // blocks that are whole sectors

 public:
  static constexpr int kBlocks = kBytes * kTogether < kChunkBytes ? kChunkBytes / kBytes / kTogether * kTogether : kTogether;
  static constexpr int kSharedBytes = kBlocks * kBytes;

  // From block `first` of the panel on.
  __device__ void Fetch(Global<const unsigned char> panel, int first, int blocks) {
    const Global<const unsigned char> from = panel + static_cast<int64_t>(first) * kBytes;
    const int bytes = blocks * kBytes, lane = threadIdx.x % 32;
    const bool whole = !kByHalves || AddressOf(from) % kUnit == 0;
    MOED_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      const int unit = 32 * i + lane;
      if (unit * kUnit >= bytes) continue;
      if (whole && (unit + 1) * kUnit <= bytes) {
        held_[i] = LoadOnce<uint4>(from, unit);
      } else if constexpr (kByHalves) {
        held_[i] = Halves(from, unit, bytes);
      }
    }
  }
  // What was fetched last. Behind an odd number of blocks there may be 8 bytes of nothing.
  __device__ void Put(Shared<unsigned char> to, int blocks) const {
    const int lane = threadIdx.x % 32;
    MOED_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      const int unit = 32 * i + lane;
      if (unit * kUnit < blocks * kBytes) Store(to, unit, held_[i]);
    }
  }

 private:
  static __device__ uint4 Halves(Global<const unsigned char> from, int unit, int bytes) {
    const uint2 low = LoadOnce<uint2>(from, 2 * unit);
    uint2 high = {};
    if (unit * kUnit + kHalf < bytes) high = LoadOnce<uint2>(from, 2 * unit + 1);
    return {low.x, low.y, high.x, high.y};
  }

  static_assert(kBytes % kHalf == 0 && kSharedBytes % kSector == 0);
  static constexpr int kUnits = (kSharedBytes / kUnit + 31) / 32;
  uint4 held_[kUnits];
};

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
