#include "core/kernels/backend_memory.h"

#include <cstring>

namespace moed {
namespace {

class HostMemory final : public BackendMemory {
 public:
  Allocator& shared() override { return Allocator::Host(); }
  Allocator& working() override { return Allocator::Host(); }
  uint64_t working_bytes() const override { return 0; }
  void Copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
};

}  // namespace

BackendMemory& BackendMemory::Host() {
  static HostMemory memory;
  return memory;
}

}  // namespace moed
