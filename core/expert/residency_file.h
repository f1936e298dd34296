// Which records were in memory, best first, from one run of the daemon to the next: a start reads them before anything else.
// Plain text: a line that names the model, one "LAYER EXPERT PRECISION" for each record, and a last line with their number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/store/description.h"

namespace moed {

struct ResidencyFile {
  std::string path;
  uint64_t model_hash = 0;
};

// The file is replaced as a whole: whoever reads it, after a crash too, sees the one before or this one. RESOURCE_EXHAUSTED (disk
// full), FAILED_PRECONDITION; each names the file.
absl::Status WriteResidency(const ResidencyFile& file, std::span<const CachedKey> records);

// FAILED_PRECONDITION: it is another model's. INVALID_ARGUMENT names the line that is no record of this store, or is there twice.
// The errno's code where it cannot be opened or read.
absl::StatusOr<std::vector<CachedKey>> ReadResidency(const ResidencyFile& file, const StoreDescription& store);

}  // namespace moed
