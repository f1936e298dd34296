// The stand-in's memory: which pieces of it there are, for all runtimes of the process, since Buffers return themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"

namespace moed::emulation {

// A piece of one kind, filled with kPoison: as numbers NaN, as integers -1. That of a device has addresses that the host cannot
// follow (device_address.h). RESOURCE_EXHAUSTED where a device of `memory_bytes` would have no more.
absl::StatusOr<Buffer> AllocateMemory(size_t bytes, MemoryKind kind, uint64_t memory_bytes);
inline constexpr uint8_t kPoison = 0xff;

// By all runtimes. Not for memory of the host.
uint64_t AllocatedBytes(MemoryKind kind);

// The piece that the address lies in, to where it ends; empty: none, or the host's own.
struct MemoryPiece {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool Holds(uintptr_t address, size_t bytes) const { return address >= begin && address < end && end - address >= bytes; }
};
MemoryPiece PieceAt(uintptr_t address);

}  // namespace moed::emulation
