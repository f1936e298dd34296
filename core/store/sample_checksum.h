// What tells files of one size and one time apart without reading them whole.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace moed {

// Checksum of the first and the last 64 KiB and of 16 pieces of 4 KiB between them: of all bytes where a file has no more.
absl::StatusOr<uint64_t> SampleChecksum(const std::string& path);

}  // namespace moed
