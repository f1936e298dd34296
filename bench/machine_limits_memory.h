// Reading memory once, in a few simple ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace moed {

inline constexpr size_t kReadPieceBytes = 512 << 10;  // a multiple of it is what `run` reads

struct MemoryRead {
  std::string_view name;
  std::string_view backend;  // may run where MakeBackend(backend) works
  uint64_t (*run)(const std::byte* data,
                  size_t bytes);  // data 64-byte aligned; what is returned has no meaning, it only keeps the loads
};
std::span<const MemoryRead> MemoryReads();

}  // namespace moed
