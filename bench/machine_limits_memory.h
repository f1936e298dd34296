// Reading memory once, in a few simple ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/executor.h"

namespace moed {

inline constexpr size_t kReadPieceBytes = 512 << 10;  // a multiple of it is what `run` reads

struct MemoryRead {
  std::string_view name;
  std::string_view backend;  // may run where MakeComputeBackend(backend) works
  uint64_t (*run)(const std::byte* data,
                  size_t bytes);  // data 64-byte aligned; what is returned has no meaning, it only keeps the loads
};
std::span<const MemoryRead> MemoryReads();
bool Runs(std::string_view backend);

// GB/s of one pass over `memory`, whose bytes are a multiple of kReadPieceBytes, by all threads.
double ReadRate(const MemoryRead& read, Executor& executor, std::span<const std::byte> memory);
// The one with the highest median of a few passes.
const MemoryRead& BestRead(Executor& executor, std::span<const std::byte> memory);

}  // namespace moed
