// What kernels are written in: CUDA C++, in the part of it that two compilers can make something of. nvcc makes what runs on the
// device, with the aliases below; g++ and clang make what emulation/ runs on the host, every thread by itself, so that accesses,
// barriers and exchanges of warps can be checked without a GPU.
//
//   namespace moed {
//   inline namespace MOED_CUDA_LANGUAGE {   // both may be in one program: all that sees this header lies in here
//   namespace {
//   struct ScaleArguments {                 // trivially copyable, the kernel's only parameter
//     Global<float> x;
//     float scale;
//     int n;
//   };
//   __global__ void Scale(ScaleArguments a) {
//     const int i = blockIdx.x * blockDim.x + threadIdx.x;
//     if (i < a.n) a.x[i] = a.scale * a.x[i];
//   }
//   }
//   void EnqueueScale(DeviceStream& stream, float* x, float scale, int n) {
//     Launch<Scale>(stream, {.grid = {Blocks(n, 256)}, .block = {256}}, ScaleArguments{x, scale, n});
//   }
//
// Memory. Global<T> and Shared<T> are the only pointers to memory that threads share; plain pointers, references and arrays are a
// thread's own. On the device they are T*. Elsewhere p[i] of a const T is a number, and of a T a proxy: write its type out
// (`float v = p[i]`, never auto), and take what has members by Load<T>(p, i). Every access is aligned to its size.
//   Load<uint4>(p, i)      the i-th uint4 from p on, in one access; Store(p, i, uint4) likewise. p may point to anything
//   LoadOnce<uint4>(p, i)  the same for what is not read again (weights): it does not push others out of the caches
//   PointerCast<T>(p)      p as a pointer to T, in the same memory
//   AddressOf(p)           a number, for what depends on how p is aligned
//   SharedMemory<T>(byte)  what lies `byte` bytes into the block's LaunchShape::shared_bytes. There is no __shared__. Nothing is
//                          in it when a block begins
//
// Threads. threadIdx, blockIdx, blockDim, gridDim; a block has whole warps. __syncthreads() is reached by every thread of the
// block, at the same place; no thread returns before another's barrier. __syncwarp(mask), __shfl_sync, __shfl_xor_sync,
// __shfl_up_sync, __shfl_down_sync (32 or 64 bits), __ballot_sync, __any_sync, __all_sync: every lane that the mask names calls
// the same one with the same mask, and none has returned. So do all 32 lanes __reduce_max_sync, __reduce_min_sync and
// __reduce_add_sync, of 32-bit integers. Only barriers order memory: __syncthreads() within a block,
// __syncwarp() with all 32 lanes within a warp. Exchanges do not, nor is anything ordered between the blocks of a launch.
//
// Launches. JoinLaunches() comes first in every kernel: the one that follows may then come to the multiprocessors, and until it
// returns those before may still run, and nothing that any launch of the same list stores may be read or written.
//
// Numbers. Compiled with -fmad=false (-ffp-contract=off), so a product and a sum are rounded each; fmaf is written out. Division
// and sqrtf are correctly rounded. Functions of <cmath> beyond fmaf, fma, sqrtf, sqrt, fabsf, fmaxf, fminf, rintf, floorf are not
// the same bits on both: use core/kernels/math.h's arithmetic. Of intrinsics there are those of emulation/arithmetic.h, and
// SignsOfBytes<selector>(x, y): of each byte that __byte_perm would take, its sign eight times. constexpr functions of the host
// (core/quant/half.h) may be called: nvcc gets --expt-relaxed-constexpr.
#pragma once

#include <type_traits>

#include "core/kernels/cuda/runtime.h"

#ifdef __CUDACC__
#define MOED_CUDA_LANGUAGE compiled
#include "core/kernels/cuda/compiled.h"
#else
#define MOED_CUDA_LANGUAGE emulated
#include "core/kernels/cuda/emulation/language.h"
#endif

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {

constexpr unsigned Blocks(unsigned items, unsigned items_a_block) { return (items + items_a_block - 1) / items_a_block; }

// Enqueues kKernel, which returns nothing and takes one `Arguments`.
template <auto kKernel, class Arguments>
void Launch(DeviceStream& stream, const LaunchShape& shape, const Arguments& arguments) {
  static_assert(std::is_trivially_copyable_v<Arguments>);
  static_assert(std::is_same_v<decltype(kKernel), void (*)(Arguments)>);
  stream.Launch(KernelOf<kKernel, Arguments>(), shape, std::as_bytes(std::span(&arguments, 1)));
}

}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
