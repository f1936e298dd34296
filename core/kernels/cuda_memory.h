// The memory of a device as its backend hands it out.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/copier.h"
#include "core/kernels/backend_memory.h"
#include "core/kernels/cuda/runtime.h"

namespace moed {

// Whole pages of one kind.
class DeviceAllocator final : public Allocator {
 public:
  DeviceAllocator(DeviceRuntime& runtime, MemoryKind kind) : runtime_(runtime), kind_(kind) {}
  // RESOURCE_EXHAUSTED; INTERNAL where the device gives the host memory that is no whole pages.
  absl::StatusOr<Buffer> Allocate(size_t bytes) override;

 private:
  DeviceRuntime& runtime_;
  const MemoryKind kind_;
};

// Pinned memory, which the host reads files into and kernels read where it is, and, of a device that has some, memory of its own.
// Copies are work of `stream`.
class CudaMemory final : public BackendMemory {
 public:
  CudaMemory(DeviceRuntime& runtime, DeviceStream& stream)
      : runtime_(runtime),
        stream_(stream),
        shared_(runtime, MemoryKind::kPinned),
        own_(runtime, MemoryKind::kDevice),
        working_(runtime.attributes().unified_memory ? shared_ : own_) {}

  Allocator& shared() override { return shared_; }
  Allocator& working() override { return working_; }
  WorkingBytes working_bytes() const override {
    const DeviceAttributes& device = runtime_.attributes();
    return device.unified_memory ? WorkingBytes{} : WorkingBytes{device.memory_bytes, device.free_bytes};
  }
  void Copy(void* to, const void* from, size_t bytes) override { stream_.Copy(to, from, bytes); }
  absl::StatusOr<std::unique_ptr<Copier>> MakeCopier() override;

 private:
  DeviceRuntime& runtime_;
  DeviceStream& stream_;
  DeviceAllocator shared_;
  DeviceAllocator own_;
  DeviceAllocator& working_;
};

}  // namespace moed
