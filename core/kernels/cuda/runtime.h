// What the host does with a device: memory, streams, events, launches. Two implementations: the CUDA runtime's, and a stand-in on
// the host that runs kernels in emulation and delays work as far as the rules of order allow (emulation/runtime.h, for tests).
//
// Work on a stream runs in the order of its calls. Streams among each other, and the host with them, are ordered by events and by
// waits alone. Calls that enqueue return at once and copy what describes the work; the memory that the work reads and writes
// belongs to it until it has run, memory of the host too. What goes wrong on the way is told by the next wait, and by every
// later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/ready_event.h"

namespace moed {

struct Dimensions {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
  unsigned count() const { return x * y * z; }
};

struct LaunchShape {
  Dimensions grid;            // blocks
  Dimensions block;           // threads; their number a multiple of 32, at most 1024
  unsigned shared_bytes = 0;  // of each block
};

// What Launch in language.h makes of a kernel: the same for as long as the program runs.
struct Kernel {
  const char* signature = nullptr;               // the compiler's words, with the kernel's name in them
  const void* function = nullptr;                // compiled by nvcc: what the CUDA runtime knows it by
  void (*run)(const void* arguments) = nullptr;  // compiled for the host: the body of one thread
};

// A launch, and where its arguments lie.
struct KernelLaunch {
  Kernel kernel;
  LaunchShape shape;
  std::span<const std::byte> arguments;
};

// c (columns, rows) = b (columns, inner) times the transpose of a (rows, inner): IEEE's 16-bit numbers, 16-byte aligned, `inner`
// a multiple of 8. Products are summed in float32, in any order.
struct HalfProduct {
  const uint16_t* a = nullptr;
  const uint16_t* b = nullptr;
  float* c = nullptr;
  int rows = 0;
  int columns = 0;
  int inner = 0;
};

// Launches that a stream takes at once and runs one after the other. Made by a runtime; outlives its runs.
class LaunchGraph {
 public:
  virtual ~LaunchGraph() = default;
};

// Thread contract: one call at a time to a stream; several streams at once.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;  // its work has run before

  virtual void Copy(void* to, const void* from, size_t bytes) = 0;  // between memories of any kind
  virtual void Fill(void* to, uint8_t value, size_t bytes) = 0;
  virtual void Launch(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> arguments) = 0;
  virtual void LaunchAll(LaunchGraph& graph) = 0;
  virtual void Multiply(const HalfProduct& product) = 0;  // once DeviceRuntime::OpenMatmul was OK
  virtual void Record(ReadyEvent& event) = 0;
  // What is enqueued from here on runs after the event as it was recorded last; an event never recorded holds nothing up.
  virtual void Await(const ReadyEvent& event) = 0;

  virtual bool Idle() const = 0;           // all of it has run
  virtual absl::Status Synchronize() = 0;  // returns when all of it has run
};

struct DeviceAttributes {
  bool unified_memory = false;  // the device's memory is the processor's: nothing is won by copies
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;    // of those, once the device is open
  unsigned shared_bytes = 0;  // the most that a block may have
  int multiprocessors = 0;
};

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;  // its streams and events are gone before; buffers may outlive it
  virtual const DeviceAttributes& attributes() const = 0;

  // Memory of one kind, 256-byte aligned, with anything in it. RESOURCE_EXHAUSTED where there is not as much.
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryKind kind) = 0;
  virtual absl::StatusOr<std::unique_ptr<DeviceStream>> MakeStream() = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadyEvent>> MakeEvent() = 0;
  // Copies what it is given. RESOURCE_EXHAUSTED where there is no memory for it.
  virtual absl::StatusOr<std::unique_ptr<LaunchGraph>> MakeGraph(std::span<const KernelLaunch> launches) = 0;

  // Loads the library that multiplies matrices. FAILED_PRECONDITION: there is none, with its name and the remedy. What it takes
  // of the device is in attributes().free_bytes from then on.
  virtual absl::Status OpenMatmul() = 0;

  virtual absl::Status Wait(const ReadyEvent& event) = 0;  // the host's wait
  virtual absl::Status Synchronize() = 0;                  // for all streams
};

}  // namespace moed
