#include "core/kernels/cuda/emulation/device_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/status.h"
#include "core/kernels/cuda/emulation/device_address.h"

namespace moed::emulation {
namespace {

struct Pieces {
  absl::Mutex mutex;
  std::map<uintptr_t, size_t> sizes ABSL_GUARDED_BY(mutex);  // by the address that was given out
  std::map<MemoryKind, uint64_t> bytes ABSL_GUARDED_BY(mutex);
};

Pieces& AllPieces() {
  static Pieces& pieces = *new Pieces;
  return pieces;
}

template <MemoryKind kKind>
void Release(std::byte* data, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  Pieces& pieces = AllPieces();
  {
    absl::MutexLock lock(&pieces.mutex);
    pieces.sizes.erase(address);
    pieces.bytes[kKind] -= bytes;
  }
  munmap(reinterpret_cast<void*>(address & ~kDeviceBit), RoundUp(bytes, kPageBytes));
}

Buffer::Deleter ReleaseOf(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
      return Release<MemoryKind::kDevice>;
    case MemoryKind::kManaged:
      return Release<MemoryKind::kManaged>;
    default:
      return Release<MemoryKind::kPinned>;
  }
}

}  // namespace

absl::StatusOr<Buffer> AllocateMemory(size_t bytes, MemoryKind kind, uint64_t memory_bytes) {
  if (kind == MemoryKind::kHost) return Buffer::Allocate(bytes);
  if (bytes == 0) return InvalidArgument("memory of 0 bytes");
  Pieces& pieces = AllPieces();
  absl::MutexLock lock(&pieces.mutex);
  const bool of_device = kind == MemoryKind::kDevice;
  uint64_t& taken = pieces.bytes[kind];
  if (of_device && (bytes > memory_bytes || taken > memory_bytes - bytes)) {
    return ResourceExhausted("no ", bytes, " bytes of device memory: it has ", memory_bytes, ", ", taken, " are taken");
  }
  void* storage = mmap(nullptr, RoundUp(bytes, kPageBytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (storage == MAP_FAILED) return ErrnoError(errno, "cannot map ", bytes, " bytes");
  std::memset(storage, kPoison, bytes);
  const uintptr_t address = reinterpret_cast<uintptr_t>(storage) | (of_device ? kDeviceBit : 0);
  pieces.sizes.emplace(address, bytes);
  taken += bytes;
  return Buffer::Adopt(reinterpret_cast<std::byte*>(address), bytes, kind, ReleaseOf(kind));
}

uint64_t AllocatedBytes(MemoryKind kind) {
  Pieces& pieces = AllPieces();
  absl::MutexLock lock(&pieces.mutex);
  return pieces.bytes[kind];
}

MemoryPiece PieceAt(uintptr_t address) {
  Pieces& pieces = AllPieces();
  absl::MutexLock lock(&pieces.mutex);
  const auto behind = pieces.sizes.upper_bound(address);
  if (behind == pieces.sizes.begin()) return {};
  const auto [begin, bytes] = *std::prev(behind);
  const MemoryPiece piece = {begin, begin + bytes};
  return piece.Holds(address, 1) ? piece : MemoryPiece{};
}

}  // namespace moed::emulation
