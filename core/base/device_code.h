// Marks what CUDA device code shares with the processor's, so that both are one text; for other compilers they say nothing.
//   MOED_DEVICE  a function of both
//   MOED_UNROLL  before a loop that must be unrolled, so that the arrays it indexes are registers
//   MOED_TABLE   a constexpr table that a function of both reads. To nvcc it is the device's own, and each file's own
// What is constexpr without a table needs no mark (nvcc --expt-relaxed-constexpr).
#pragma once

#if defined(__CUDACC__)
#define MOED_DEVICE __host__ __device__
#define MOED_TABLE static __device__ constexpr
#define MOED_UNROLL _Pragma("unroll")
#else
#define MOED_DEVICE
#define MOED_UNROLL
#define MOED_TABLE inline constexpr
#endif
