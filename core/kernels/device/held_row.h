// The columns of a row, shared out among threads, which have the first of their own in registers.
#pragma once

#include "core/base/device_code.h"
#include "core/kernels/cuda/language.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr int kHeldColumns = 8;  // of a row, that a thread has in registers

// A column of a row; `held`: of the columns thread, thread + threads, ... its place among the thread's own. kHeldColumns: behind
// them.
struct OwnColumn {
  int index;
  int held;
};

// Who have a row together: the threads of a block, or the lanes of a warp.
struct OfBlock {
  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ int threads() { return static_cast<int>(blockDim.x); }
};
struct OfWarp {
  static __device__ int thread() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ int threads() { return 32; }
};

// body(column) for a thread's columns of a row of n, ascending. What the body loads of held ones is in flight together.
template <class Owners = OfBlock, class Body>
__device__ inline void ForHeldColumns(int n, const Body& body) {
  const int thread = Owners::thread(), threads = Owners::threads();
  MOED_UNROLL
  for (int held = 0; held < kHeldColumns; ++held) {
    if (thread + held * threads < n) body(OwnColumn{thread + held * threads, held});
  }
}
template <class Owners = OfBlock, class Body>
__device__ inline void ForColumns(int n, const Body& body) {
  const int thread = Owners::thread(), threads = Owners::threads();
  ForHeldColumns<Owners>(n, body);
  for (int i = thread + kHeldColumns * threads; i < n; i += threads) body(OwnColumn{i, kHeldColumns});
}

// A row of n numbers, each read once as far as they can be held; the others are read again.
template <class T, class Owners = OfBlock>
class HeldRow {
 public:
  __device__ HeldRow(Global<T> row, int n, float of_none = 0) : row_(row), of_none_(of_none) {
    const int thread = Owners::thread(), threads = Owners::threads();
    MOED_UNROLL
    for (int held = 0; held < kHeldColumns; ++held) {
      const int i = thread + held * threads;
      held_[held] = row != nullptr && i < n ? static_cast<float>(row[i]) : of_none;
    }
  }
  __device__ float operator()(OwnColumn column) const {
    if (column.held < kHeldColumns) return held_[column.held];
    return row_ == nullptr ? of_none_ : static_cast<float>(row_[column.index]);
  }
  __device__ void Put(OwnColumn column, float number) {
    if (column.held < kHeldColumns) {
      held_[column.held] = number;
    } else {
      row_[column.index] = number;
    }
  }

 private:
  Global<T> row_;
  float of_none_;  // where the row is null
  float held_[kHeldColumns];
};

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
