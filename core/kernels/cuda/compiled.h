// The language of kernels as nvcc compiles it: aliases and little else (language.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/kernels/cuda/runtime.h"

namespace moed {
inline namespace compiled {

template <class T>
using Global = T*;
template <class T>
using Shared = T*;

template <class To, class From>
__device__ inline To* PointerCast(From* pointer) {
  return reinterpret_cast<To*>(pointer);
}

template <class V, class T>
__device__ inline V Load(const T* pointer, ptrdiff_t index) {
  return reinterpret_cast<const V*>(pointer)[index];
}
template <class V, class T>
__device__ inline V LoadOnce(const T* pointer, ptrdiff_t index) {
  return __ldcs(reinterpret_cast<const V*>(pointer) + index);
}
template <class V, class T>
__device__ inline void Store(T* pointer, ptrdiff_t index, const V& value) {
  reinterpret_cast<V*>(pointer)[index] = value;
}

__device__ inline void JoinLaunches() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <class T>
__device__ inline uintptr_t AddressOf(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

// A selector of prmt may ask for signs, one of __byte_perm may not.
template <unsigned kSelector>
__device__ inline unsigned SignsOfBytes(unsigned x, unsigned y) {
  unsigned result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y), "n"(kSelector | 0x8888));
  return result;
}

template <class T>
__device__ inline T* SharedMemory(size_t byte = 0) {
  extern __shared__ uint4 moed_shared_memory[];
  return reinterpret_cast<T*>(reinterpret_cast<char*>(moed_shared_memory) + byte);
}

// Every kernel that KernelOf is called for in the program, once main() runs.
inline std::vector<Kernel>& ListedKernels() {
  static std::vector<Kernel> kernels;
  return kernels;
}

template <auto kKernel, class Arguments>
Kernel Listed() {
  return ListedKernels().emplace_back(
      Kernel{.signature = __PRETTY_FUNCTION__, .function = reinterpret_cast<const void*>(kKernel)});
}

template <auto kKernel, class Arguments>
const Kernel kListed = Listed<kKernel, Arguments>();

template <auto kKernel, class Arguments>
Kernel KernelOf() {
  return kListed<kKernel, Arguments>;
}

}  // namespace compiled
}  // namespace moed
