// What of the host memory that Buffer::Allocate gave is resident: buffers are used little by little.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace moed {

// The kernel's pages: 4 KiB, and on arm64 16 or 64 KiB as well.
size_t SystemPageBytes();

// Of all such buffers. Looks at each page: half a millisecond for a GiB. The kernel's error where it does not tell, as behind a
// filter of system calls. Thread-safe.
absl::StatusOr<int64_t> ResidentBufferBytes();

// Pages that lie whole in `memory`, which is of such a buffer, leave the process. Zeroed ones come where they are touched again.
void GiveBackPages(std::span<std::byte> memory, size_t page_bytes = SystemPageBytes());

}  // namespace moed
