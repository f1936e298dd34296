#include "core/kernels/cuda_memory.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "core/base/status.h"

namespace moed {
namespace {

absl::StatusOr<std::unique_ptr<Copier>> MakeStreamCopier(DeviceRuntime& runtime);

class StreamCopier final : public Copier {
 public:
  StreamCopier(DeviceRuntime& runtime, std::unique_ptr<DeviceStream> stream) : runtime_(runtime), stream_(std::move(stream)) {}
  ~StreamCopier() override { stream_->Synchronize().IgnoreError(); }
  void Copy(void* to, const void* from, size_t bytes) override { stream_->Copy(to, from, bytes); }
  absl::StatusOr<std::unique_ptr<ReadyEvent>> MakeEvent() override { return runtime_.MakeEvent(); }
  absl::StatusOr<std::unique_ptr<Copier>> MakeAnother() override { return MakeStreamCopier(runtime_); }
  void Record(ReadyEvent& event) override { stream_->Record(event); }
  void Await(const ReadyEvent& event) override { stream_->Await(event); }
  absl::Status Wait(const ReadyEvent& event) override { return runtime_.Wait(event); }

 private:
  DeviceRuntime& runtime_;
  const std::unique_ptr<DeviceStream> stream_;
};

absl::StatusOr<std::unique_ptr<Copier>> MakeStreamCopier(DeviceRuntime& runtime) {
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<DeviceStream> stream, runtime.MakeStream());
  return std::make_unique<StreamCopier>(runtime, std::move(stream));
}

}  // namespace

absl::StatusOr<Buffer> DeviceAllocator::Allocate(size_t bytes) {
  if (bytes == 0) return Buffer();
  if (bytes > std::numeric_limits<size_t>::max() - kPageBytes) return ResourceExhausted("no ", bytes, " bytes of memory");
  MOED_ASSIGN_OR_RETURN(Buffer buffer, runtime_.Allocate(RoundUp(bytes, kPageBytes), kind_));
  if (kind_ != MemoryKind::kDevice && reinterpret_cast<uintptr_t>(buffer.data()) % kPageBytes != 0) {
    return Internal("the device gave memory that does not begin at a page of ", kPageBytes, " bytes");
  }
  return buffer;
}

absl::StatusOr<std::unique_ptr<Copier>> CudaMemory::MakeCopier() {
  if (unified()) return FailedPrecondition("the device's memory is the processor's: nothing is copied");
  return MakeStreamCopier(runtime_);
}

}  // namespace moed
