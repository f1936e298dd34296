// The stand-in for a device: streams whose work runs as late as the rules of order allow, or at a time that a seed chooses, on
// the host thread that first has to wait for it. What a wait is missing for is read before it is written, or overwritten before
// it is read; so results are other bits, for some seed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/kernels/cuda/emulation/access_log.h"
#include "core/kernels/cuda/emulation/fault.h"
#include "core/kernels/cuda/runtime.h"

namespace moed::emulation {

// Calls that order work, and copies. kWait: the host's, for an event, for a stream or for all.
enum class OrderCall : uint8_t { kRecord, kAwait, kWait, kCopy };
inline constexpr int kOrderCalls = 4;

// One of them: the first of its kind is number 0.
struct NumberedCall {
  OrderCall call = OrderCall::kWait;
  uint64_t number = 0;
};

// Whose memory is the processor's, and one with memory of its own.
inline constexpr DeviceAttributes kUnifiedDevice = {.unified_memory = true,
                                                    .memory_bytes = uint64_t{1} << 40,
                                                    .free_bytes = uint64_t{1} << 40,
                                                    .shared_bytes = 48 << 10,
                                                    .multiprocessors = 4};
inline constexpr DeviceAttributes kDiscreteDevice = {
    .memory_bytes = uint64_t{1} << 40, .free_bytes = uint64_t{1} << 40, .shared_bytes = 48 << 10, .multiprocessors = 4};

struct RuntimeOptions {
  // 0: nothing runs before somebody waits for it. Others: now and then a stream gets on by itself, by chance.
  uint64_t seed = 0;
  // Every access of kernels is checked. Otherwise threads only stop where they wait for each other, which is as fast as this
  // gets.
  bool watch = true;
  bool log = false;  // counts accesses
  // What is missing, so that a test can show that it would be missed.
  std::optional<NumberedCall> without;
  std::optional<Place> without_barrier;  // this __syncthreads() of every kernel
  bool matmul = true;                    // there is a library for OpenMatmul
  DeviceAttributes attributes = kDiscreteDevice;
};

// What streams were asked for, and graphs that the runtime was.
struct LaunchCounts {
  uint64_t single = 0;
  uint64_t graphs = 0;
  uint64_t matmuls = 0;
  uint64_t graphs_made = 0;
};

// The first fault is what every wait from then on says.
class EmulatedRuntime : public DeviceRuntime {
 public:
  virtual std::vector<Fault> TakeFaults() = 0;
  virtual std::map<std::string, KernelTraffic> traffic() const = 0;
  virtual uint64_t calls(OrderCall call) const = 0;  // so far
  virtual LaunchCounts launches() const = 0;         // so far
  virtual std::set<Place> barriers() const = 0;      // that blocks have come to
  // Of that kind, of all stand-ins of the process.
  virtual uint64_t AllocatedBytes(MemoryKind kind) const = 0;

  // For tests of what then happens. So many launches more are run, the next one is a fault; negative: none is.
  virtual void FailLaunch(int launches) = 0;
  // From now on there is no memory, or there is again.
  virtual void RefuseMemory(bool refuse) = 0;
  // From now on no graph is made, as by a driver that has none.
  virtual void RefuseGraphs() = 0;
};

std::unique_ptr<EmulatedRuntime> MakeEmulatedRuntime(const RuntimeOptions& options);

}  // namespace moed::emulation
