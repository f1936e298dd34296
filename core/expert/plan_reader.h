// What the readers of files that moed-plan makes for one store have in common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moed {

// The file whole. As ReadBoundedFile.
absl::StatusOr<std::string> ReadPlanFile(const std::string& path);
// INVALID_ARGUMENT unless `found`, as the file has it, is the hash of the store (16 hexadecimal digits).
absl::Status CheckPlanHash(std::string_view found, uint64_t model_hash);

}  // namespace moed
