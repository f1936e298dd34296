// Numbers of bytes as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moed {

// "8MiB", "1.5GiB", "900MB", "4096" to bytes. INVALID_ARGUMENT says what is allowed.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);
std::string FormatBytes(uint64_t bytes);  // "7.5 MiB"

}  // namespace moed
