#include "tests/server/counted_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

namespace moed {

std::atomic<int64_t> heap_bytes{0}, heap_peak{0};
thread_local int64_t mapped_bytes = 0;

}  // namespace moed

namespace {

using moed::heap_bytes;
using moed::heap_peak;
using moed::mapped_bytes;

// In front of what operator new gives.
struct alignas(16) Header {
  size_t bytes;
};

}  // namespace

// Not inlined: the compiler would see free() meet the library's operator new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  auto* header = static_cast<Header*>(std::malloc(sizeof(Header) + bytes));
  if (header == nullptr) throw std::bad_alloc();
  header->bytes = bytes;
  const int64_t now = heap_bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed) + static_cast<int64_t>(bytes);
  if (now > heap_peak.load(std::memory_order_relaxed)) heap_peak.store(now, std::memory_order_relaxed);
  return header + 1;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  Header* header = static_cast<Header*>(memory) - 1;
  heap_bytes.fetch_sub(static_cast<int64_t>(header->bytes), std::memory_order_relaxed);
  std::free(header);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

extern "C" void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  mapped_bytes += static_cast<int64_t>(bytes);
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
extern "C" int munmap(void* address, size_t bytes) noexcept {
  mapped_bytes -= static_cast<int64_t>(bytes);
  return static_cast<int>(syscall(SYS_munmap, address, bytes));
}
