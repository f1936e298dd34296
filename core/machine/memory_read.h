// Reading memory once, in a few simple ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
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

struct MemoryBandwidth {
  double bytes_per_second = 0;  // the median of a few passes of the best read
  std::string_view form;        // its name
  int threads = 0;
  size_t memory_bytes = 0;  // of a pass
};
// Of `bytes` of memory of its own, rounded down to pieces, one at least. RESOURCE_EXHAUSTED when the kernel refuses them.
absl::StatusOr<MemoryBandwidth> MeasureMemoryBandwidth(int threads, size_t bytes);

}  // namespace moed
