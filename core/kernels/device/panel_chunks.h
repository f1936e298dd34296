// The bytes of panels that follow each other on their way from global to shared memory, a chunk after the other, by a block of
// threads together: neighbouring threads bring neighbouring 16 bytes. While a chunk is computed with, the next is on its way, in
// registers.
#pragma once

#include "core/kernels/cuda/language.h"
#include "core/kernels/cuda_kernel_set.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr unsigned kChunkThreads = 128;

// kBytes: of a format's block, a multiple of 8. Where blocks are no multiples of 16 bytes a chunk may begin between two units of
// 16 bytes; then it is brought from the unit on in which it begins, which is the matrix's.
template <int kBytes>
class PanelChunks {
  static constexpr int kUnit = sizeof(uint4), kHalf = sizeof(uint2);
  static constexpr bool kByHalves = kBytes % kUnit != 0;
  static_assert(kBytes % kHalf == 0);

 public:
  // An even number, so that a chunk begins between two units only where its panel does.
  static constexpr int kBlocks =
      kByHalves ? (cuda::kFewProductBytes - kHalf) / (2 * kBytes) * 2 : cuda::kFewProductBytes / kBytes;
  static constexpr unsigned kSharedBytes = cuda::kFewProductBytes;

  __device__ void Fetch(Global<const unsigned char> weights, int first, int blocks) {
    Global<const unsigned char> from = weights + static_cast<int64_t>(first) * kBytes;
    skew_ = kByHalves ? static_cast<int>(AddressOf(from) % kUnit) : 0;
    from = from - skew_;
    const int end = skew_ + blocks * kBytes;
    MOED_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      const int unit = static_cast<int>(kChunkThreads) * i + static_cast<int>(threadIdx.x);
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
      const int unit = static_cast<int>(kChunkThreads) * i + static_cast<int>(threadIdx.x);
      if (unit * kUnit < skew_ + blocks * kBytes) Store(to, unit, held_[i]);
    }
    return to + skew_;
  }

 private:
  static constexpr int kUnits = cuda::kFewProductBytes / kUnit / static_cast<int>(kChunkThreads);
  uint4 held_[kUnits];
  int skew_ = 0;
};

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
