// What the running thread of a block sees, and the ways by which its code reaches the block (block.h).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "core/kernels/cuda/emulation/vectors.h"
#include "core/kernels/cuda/runtime.h"

namespace moed {
inline namespace emulated {

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local Dimensions blockDim;
extern constinit thread_local Dimensions gridDim;

}  // namespace emulated

namespace emulation {

// A line of a kernel, where a thread waits for others.
struct Place {
  static constexpr Place Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  const char* file = nullptr;
  int line = 0;
  auto operator<=>(const Place&) const = default;  // of one translation unit
};

enum class Space : uint8_t { kGlobal, kShared };
enum class AccessKind : uint8_t { kLoad, kStore };

struct Access {
  uintptr_t address = 0;  // kShared: bytes from the start of the block's
  unsigned bytes = 0;
  unsigned alignment = 1;
  Space space = Space::kGlobal;
  AccessKind kind = AccessKind::kLoad;
  bool once = false;  // LoadOnce
};

enum class WarpCall : uint8_t { kSync, kShuffle, kBallot };

class Block;

// Of the block that this host thread runs.
struct Running {
  std::byte* shared = nullptr;
  bool watched = false;  // every access is told to the block's observer
  Block* block = nullptr;
};
extern constinit thread_local Running running;

// Whether the access may be made; otherwise the fault has been told. To be called out of line, from where the kernel's code has
// it: the return address says which access of the kernel it is.
bool Permit(const Access& access);

void SyncBlock(const Place& place);
// What the lanes of `mask` make of their values together, told to each: kShuffle, that of lane `source`; kBallot, those whose
// value is not 0, as a mask.
uint64_t SyncWarp(WarpCall call, uint32_t mask, uint64_t value, unsigned source, const Place& place);
unsigned Lane();

}  // namespace emulation
}  // namespace moed
