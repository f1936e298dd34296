#include "core/kernels/cuda/emulation/launch.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_format.h"
#include "core/kernels/cuda/emulation/device_memory.h"
#include "core/kernels/cuda/kernel_name.h"

namespace moed::emulation {

// What no device takes; empty: it may be.
std::string Launcher::Refusal(const LaunchShape& shape) const {
  const Dimensions& grid = shape.grid;
  const Dimensions& block = shape.block;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMostThreads || threads % kWarpLanes != 0 || block.z > 64) {
    return absl::StrFormat("a block of (%d,%d,%d) threads; allowed are whole warps of %d lanes, at most %d threads, z at most 64",
                           block.x, block.y, block.z, kWarpLanes, kMostThreads);
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 0xffff || grid.z > 0xffff) {
    return absl::StrFormat("a grid of (%d,%d,%d) blocks; allowed are 1 to 2^31 - 1, 65535 and 65535", grid.x, grid.y, grid.z);
  }
  if (shape.shared_bytes > most_shared_bytes_) {
    return absl::StrFormat("%d bytes of shared memory; allowed are %d", shape.shared_bytes, most_shared_bytes_);
  }
  return "";
}

void Launcher::Run(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> arguments, bool watch,
                   AccessLog* log) {
  watcher_.LaunchBegins(KernelName(kernel), shape, watch, log);
  if (const std::string refusal = Refusal(shape); !refusal.empty()) return watcher_.OnFault(FaultKind::kLaunch, {}, 0, refusal);
  shared_.resize(std::max<size_t>(shared_.size(), (shape.shared_bytes + 15) / 16 * 2));
  std::vector<uint64_t> order(uint64_t{shape.grid.x} * shape.grid.y * shape.grid.z);
  std::iota(order.begin(), order.end(), uint64_t{0});
  std::shuffle(order.begin(), order.end(), random_);
  for (const uint64_t number : order) {
    const uint64_t row = number / shape.grid.x;
    const uint3 index = {static_cast<unsigned>(number % shape.grid.x), static_cast<unsigned>(row % shape.grid.y),
                         static_cast<unsigned>(row / shape.grid.y)};
    if (shape.shared_bytes != 0) std::memset(shared_.data(), kPoison, shape.shared_bytes);
    block_.Run(kernel, shape, index, arguments.data(), reinterpret_cast<std::byte*>(shared_.data()), watch || log != nullptr,
               watcher_);
  }
}

}  // namespace moed::emulation
