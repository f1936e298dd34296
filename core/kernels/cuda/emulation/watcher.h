// Holds every access of a launch against the rules of memory, and collects faults.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/kernels/cuda/emulation/access_log.h"
#include "core/kernels/cuda/emulation/block.h"
#include "core/kernels/cuda/emulation/device_memory.h"
#include "core/kernels/cuda/emulation/fault.h"
#include "core/kernels/cuda/emulation/races.h"

namespace moed::emulation {

class Watcher final : public BlockObserver {
 public:
  // `checks`: accesses are held against the rules. `log` may be null.
  void LaunchBegins(std::string kernel, const LaunchShape& shape, bool checks, AccessLog* log);

  void BlockBegins(uint3 block) override;
  void BlockEnds() override;
  void BlockSynced() override;
  void WarpSynced(unsigned warp) override { clock_.WarpSynced(warp); }
  bool Permit(const Access& access, unsigned thread, const void* instruction) override;
  void OnFault(FaultKind kind, uint3 thread, uintptr_t address, const std::string& text) override;

  // Of all launches; of one launch at most kMostFaults, and of two alike the first.
  const std::vector<Fault>& faults() const { return faults_; }
  std::vector<Fault> TakeFaults();
  // One of a stream's own work, outside of kernels.
  void StreamFault(std::string what, uintptr_t address, const std::string& text);

 private:
  static constexpr size_t kMostFaults = 8;

  bool Check(const Access& access, unsigned thread);
  bool InBounds(const Access& access);
  bool Written(const Access& access);
  void CheckRaces(const Access& access, unsigned thread);
  WordHistory& HistoryOf(Space space, uintptr_t word);
  void OnFault(FaultKind kind, unsigned thread, const Access& access, const std::string& text);
  std::string Describe(const Conflict& conflict) const;

  std::string kernel_;
  LaunchShape shape_;
  bool checks_ = true;
  AccessLog* log_ = nullptr;
  uint3 block_ = {};
  std::vector<std::pair<uint32_t, uint3>> blocks_;  // of the launch: when each began
  MemoryPiece piece_;                               // the last that was touched
  BarrierClock clock_;
  GlobalHistory global_;
  std::vector<WordHistory> shared_;  // of the block
  std::vector<Fault> faults_;
  size_t earlier_faults_ = 0;  // those of launches before
};

}  // namespace moed::emulation
