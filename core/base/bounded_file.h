// Files that are read whole and not trusted: one that never ends takes no more memory than is said.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace moed {

// INVALID_ARGUMENT: it cannot be read, and why, or has more than `most` bytes.
absl::StatusOr<std::string> ReadBoundedFile(const std::string& path, size_t most);

}  // namespace moed
