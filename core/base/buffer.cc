#include "core/base/buffer.h"

#include <sys/mman.h>

#include <cerrno>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {
namespace {

class HostAllocator final : public Allocator {
 public:
  absl::StatusOr<Buffer> Allocate(size_t bytes) override { return Buffer::Allocate(bytes); }
};

}  // namespace

absl::StatusOr<Buffer> Buffer::Allocate(size_t bytes) {
  if (bytes == 0) return Buffer();
  const size_t rounded = RoundUp(bytes, kPageBytes);
  void* data = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return ResourceExhausted("cannot map ", rounded, " bytes of memory (errno ", errno, ")");
  return Buffer(static_cast<std::byte*>(data), rounded);
}

void Buffer::Reset() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

Allocator& Allocator::Host() {
  static HostAllocator allocator;
  return allocator;
}

std::byte* Arena::TakeBytes(size_t bytes) {
  const size_t rounded = Rounded(bytes);
  MOED_CHECK(used_ + rounded <= storage_.size());
  std::byte* taken = storage_.data() + used_;
  used_ += rounded;
  return taken;
}

}  // namespace moed
