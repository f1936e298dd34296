// What moed-pack says of a checkpoint without packing it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace moed {

// What `moed-pack CHECKPOINT ... --dry-run --json` writes, with these flags besides; its errors go to standard error.
// FAILED_PRECONDITION: it failed.
absl::StatusOr<std::string> DryRunPack(const std::string& checkpoint, const std::vector<std::string>& pack_flags);

}  // namespace moed
