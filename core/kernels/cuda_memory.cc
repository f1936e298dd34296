#include "core/kernels/cuda_memory.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "core/base/status.h"

namespace moed {

absl::StatusOr<Buffer> DeviceAllocator::Allocate(size_t bytes) {
  if (bytes == 0) return Buffer();
  if (bytes > std::numeric_limits<size_t>::max() - kPageBytes) return ResourceExhausted("no ", bytes, " bytes of memory");
  MOED_ASSIGN_OR_RETURN(Buffer buffer, runtime_.Allocate(RoundUp(bytes, kPageBytes), kind_));
  if (kind_ != MemoryKind::kDevice && reinterpret_cast<uintptr_t>(buffer.data()) % kPageBytes != 0) {
    return Internal("the device gave memory that does not begin at a page of ", kPageBytes, " bytes");
  }
  return buffer;
}

}  // namespace moed
