// The language of kernels as g++ and clang compile it, for the threads that block.h runs (../language.h).
#pragma once

#include "core/kernels/cuda/emulation/arithmetic.h"
#include "core/kernels/cuda/emulation/pointer.h"
#include "core/kernels/cuda/emulation/thread.h"
#include "core/kernels/cuda/emulation/vectors.h"
#include "core/kernels/cuda/emulation/warp.h"
#include "core/kernels/cuda/runtime.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace moed {
inline namespace emulated {

inline void JoinLaunches() {}  // a launch begins when those before it have ended

template <auto kKernel, class Arguments>
Kernel KernelOf() {
  return {.signature = __PRETTY_FUNCTION__,
          .run = [](const void* arguments) { kKernel(*static_cast<const Arguments*>(arguments)); }};
}

}  // namespace emulated
}  // namespace moed
