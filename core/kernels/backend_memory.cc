#include "core/kernels/backend_memory.h"

#include <cstring>

#include "core/base/status.h"

namespace moed {
namespace {

class HostMemory final : public BackendMemory {
 public:
  Allocator& shared() override { return Allocator::Host(); }
  Allocator& working() override { return Allocator::Host(); }
  WorkingBytes working_bytes() const override { return {}; }
  void Copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  absl::StatusOr<std::unique_ptr<Copier>> MakeCopier() override {
    return FailedPrecondition("the processor has one memory: nothing is copied");
  }
};

}  // namespace

BackendMemory& BackendMemory::Host() {
  static HostMemory memory;
  return memory;
}

}  // namespace moed
