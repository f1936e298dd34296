// How the warps of kernels reach memory. The accesses that the lanes of a warp make by one instruction, each for the same time
// since the block's last barrier, are one request: what a device would serve together.
//   global  in sectors of 32 bytes: those that the request touches (moved), beside as many as its bytes would fill (needed)
//   shared  in passes over 32 banks of 4 bytes: lanes of at most 4 bytes all at once, of 8 by halves, of 16 by quarters of the
//           warp; one pass where every bank is asked for one word, otherwise as many as the most wanted bank is asked for words
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/kernels/cuda/emulation/thread.h"

namespace moed::emulation {

struct GlobalTraffic {
  void Add(const GlobalTraffic& other);

  uint64_t requests = 0;
  uint64_t sectors_moved = 0;
  uint64_t sectors_needed = 0;
  std::map<unsigned, uint64_t> bytes_by_width;  // of a lane's access
  double ratio() const {
    return sectors_needed == 0 ? 0 : static_cast<double>(sectors_moved) / static_cast<double>(sectors_needed);
  }
};

struct SharedTraffic {
  uint64_t requests = 0;
  uint64_t passes = 0;
  uint64_t passes_needed = 0;
  unsigned worst_ways = 0;  // words that one bank was asked for at once
};

struct KernelTraffic {
  uint64_t launches = 0;
  GlobalTraffic loads;
  GlobalTraffic loads_once;     // of those, LoadOnce: weights
  GlobalTraffic loads_of_host;  // of the others, those of no device's memory
  GlobalTraffic stores;
  SharedTraffic shared;
};

class AccessLog {
 public:
  void LaunchBegins(const std::string& kernel);
  void Add(const Access& access, unsigned thread, const void* instruction);
  void BlockSynced();  // or has ended

  const std::map<std::string, KernelTraffic>& kernels() const { return kernels_; }
  void Clear() { kernels_.clear(); }

 private:
  struct Lane {
    unsigned number;
    uintptr_t address;
    unsigned bytes;
  };
  struct Instruction {
    Space space = Space::kGlobal;
    AccessKind kind = AccessKind::kLoad;
    bool once = false;
    std::vector<uint32_t> times;              // by thread: how often it came here since then
    std::vector<std::vector<Lane>> requests;  // by time and warp
  };

  std::map<std::string, KernelTraffic> kernels_;
  KernelTraffic* kernel_ = nullptr;                            // of the launch
  std::unordered_map<const void*, Instruction> instructions_;  // of the kernel
};

}  // namespace moed::emulation
