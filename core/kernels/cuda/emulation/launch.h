// Runs launches on the host thread that asks for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/kernels/cuda/emulation/access_log.h"
#include "core/kernels/cuda/emulation/block.h"
#include "core/kernels/cuda/emulation/watcher.h"
#include "core/kernels/cuda/runtime.h"

namespace moed::emulation {

// Thread contract: one call at a time.
class Launcher {
 public:
  // The order of blocks and of threads is the seed's. `shared_bytes`: the most that a block may have.
  Launcher(uint64_t seed, unsigned shared_bytes, std::optional<Place> without_barrier)
      : most_shared_bytes_(shared_bytes), block_(seed, without_barrier), random_(seed) {}

  // Blocks one after another, all to their end whatever they do. `watch`: every access is held against the rules; else only
  // barriers and exchanges are. `log` may be null.
  void Run(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> arguments, bool watch, AccessLog* log);

  Watcher& watcher() { return watcher_; }
  const std::set<Place>& barriers() const { return block_.barriers(); }

 private:
  std::string Refusal(const LaunchShape& shape) const;

  const unsigned most_shared_bytes_;
  Block block_;
  Watcher watcher_;
  std::mt19937_64 random_;
  std::vector<uint64_t> shared_;  // as large as that of any block so far
};

}  // namespace moed::emulation
