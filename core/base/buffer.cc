#include "core/base/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>

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
  const size_t slack = rounded < kLargePageBytes ? 0 : kLargePageBytes;
  if (rounded < bytes || rounded > SIZE_MAX - slack) return ResourceExhausted("cannot map ", bytes, " bytes of memory");
  void* mapped = mmap(nullptr, rounded + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return ResourceExhausted("cannot map ", rounded, " bytes of memory (errno ", errno, ")");
  std::byte* data = static_cast<std::byte*>(mapped);
  if (slack > 0) {
    const size_t before = -reinterpret_cast<uintptr_t>(data) % kLargePageBytes;
    if (before > 0) munmap(data, before);
    data += before;
    if (before < slack) munmap(data + rounded, slack - before);
    madvise(data, rounded, MADV_HUGEPAGE);  // a wish: kernels without large pages refuse
  }
  return Adopt(data, rounded, MemoryKind::kHost, [](std::byte* mapping, size_t length) { munmap(mapping, length); });
}

void Buffer::Reset() {
  if (data_ != nullptr) deleter_(data_, bytes_);
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
