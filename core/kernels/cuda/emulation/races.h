// Two threads that touch the same byte without a barrier between, one of them storing. Every byte remembers who stored and who
// loaded last; as many loads are remembered as it takes to miss none that a later store could race with.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/kernels/cuda/emulation/block.h"

namespace moed::emulation {

// Counts barriers: what happened at an earlier time than that of a thread's last barrier happened before the thread.
struct BarrierClock {
  uint32_t now = 1;
  uint32_t launch_began = 1;
  uint32_t block_began = 1;
  uint32_t block_synced = 1;
  std::array<uint32_t, kMostThreads / kWarpLanes> warp_synced = {};

  void LaunchBegins() { launch_began = ++now; }
  void BlockBegins();
  void BlockSynced() { block_synced = ++now; }
  void WarpSynced(unsigned warp) { warp_synced[warp] = ++now; }
};

struct Stamp {
  uint32_t time = 0;  // 0: never
  uint16_t thread = 0;
  bool several = false;  // loads: other lanes of its warp too since their last barrier
};

struct History {
  Stamp store;
  Stamp load;        // the last
  Stamp other_load;  // the last of another warp
  uint32_t load_of_earlier_block = 0;
};

struct Conflict {
  Stamp with;
  bool stored = false;
  bool same_block = true;
  unsigned byte = 0;  // of the word
};

// Of an aligned word, as a whole for as long as nobody touches a part of it.
inline constexpr unsigned kWordBytes = 4;
class WordHistory {
 public:
  // Puts an access to the bytes [first, end) of the word into their histories. The first earlier access that it races with.
  std::optional<Conflict> Touch(const BarrierClock& clock, AccessKind kind, unsigned thread, unsigned first, unsigned end);
  // Whether each of the bytes [first, end) was stored since then.
  bool StoredSince(uint32_t time, unsigned first, unsigned end) const;

 private:
  History whole_;
  std::unique_ptr<std::array<History, kWordBytes>> bytes_;  // null: all are `whole_`
};

// Histories of the words of global memory that a launch touches.
class GlobalHistory {
 public:
  void LaunchBegins();
  WordHistory& operator[](uintptr_t word);

 private:
  static constexpr uintptr_t kPage = 1024;  // words
  using Page = std::array<WordHistory, kPage>;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_number_ = 0;
  Page* last_ = nullptr;
};

}  // namespace moed::emulation
