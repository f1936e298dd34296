#include "core/base/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <map>

#include "absl/base/attributes.h"
#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"
#include "core/base/resident_buffers.h"
#include "core/base/status.h"

namespace moed {
namespace {

class HostAllocator final : public Allocator {
 public:
  absl::StatusOr<Buffer> Allocate(size_t bytes) override { return Buffer::Allocate(bytes); }
};

ABSL_CONST_INIT absl::Mutex mappings_mutex(absl::kConstInit);

using Mappings = std::map<std::byte*, size_t>;
Mappings& HostMappings() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mappings_mutex) {
  static auto* const mappings = new Mappings;
  return *mappings;
}

void Unmap(std::byte* data, size_t bytes) {
  absl::MutexLock lock(&mappings_mutex);
  HostMappings().erase(data);
  munmap(data, bytes);
}

}  // namespace

absl::StatusOr<Buffer> Buffer::Allocate(size_t bytes) {
  if (bytes == 0) return Buffer();
  const size_t rounded = RoundUp(bytes, std::max(kPageBytes, SystemPageBytes()));
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
  absl::MutexLock lock(&mappings_mutex);
  HostMappings()[data] = rounded;
  return Adopt(data, rounded, MemoryKind::kHost, Unmap);
}

size_t SystemPageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

absl::StatusOr<int64_t> ResidentBufferBytes() {
  constexpr size_t kPagesAtOnce = 4096;
  const size_t page_bytes = SystemPageBytes();
  std::array<unsigned char, kPagesAtOnce> pages;
  size_t resident = 0;
  absl::MutexLock lock(&mappings_mutex);
  for (const auto& [data, bytes] : HostMappings()) {
    for (size_t begin = 0; begin < bytes; begin += kPagesAtOnce * page_bytes) {
      const size_t length = std::min(bytes - begin, kPagesAtOnce * page_bytes);
      if (mincore(data + begin, length, pages.data()) != 0) return ErrnoError(errno, "mincore does not tell what is resident");
      resident += std::count_if(pages.begin(), pages.begin() + length / page_bytes, [](unsigned char page) { return page & 1; });
    }
  }
  return static_cast<int64_t>(resident * page_bytes);
}

void GiveBackPages(std::span<std::byte> memory, size_t page_bytes) {
  const size_t before = -reinterpret_cast<uintptr_t>(memory.data()) % page_bytes;
  if (memory.size() < before + page_bytes) return;
  const size_t whole = (memory.size() - before) / page_bytes * page_bytes;
  MOED_CHECK(madvise(memory.data() + before, whole, MADV_DONTNEED) == 0);
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
