// What a kernel did that the device's rules forbid.
#pragma once

#include <cstdint>
#include <string>

#include "core/kernels/cuda/emulation/vectors.h"

namespace moed::emulation {

enum class FaultKind : uint8_t {
  kOutOfBounds,    // global memory that no allocation holds whole, shared memory beyond the block's
  kMisaligned,     // an address that is no multiple of the access's size
  kUninitialised,  // shared memory that no thread of the block has written
  kRace,           // two threads, the same byte, a store among them, and no barrier between
  kDivergence,     // threads wait for each other at different places, or for one that has returned
  kInactiveLane,   // a lane that the mask does not name is read from, or is itself the caller
  kLaunch,         // a shape that no device takes, a copy beyond its memory
};

struct Fault {
  FaultKind kind = FaultKind::kLaunch;
  std::string kernel;
  uint3 block = {};
  uint3 thread = {};
  uintptr_t address = 0;  // global, or of the block's shared memory
  std::string text;       // all of this for a reader
};

}  // namespace moed::emulation
