// Private to core/io: what the rows of ReadBackends() open.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/io/read_backend.h"

namespace moed {

absl::StatusOr<std::unique_ptr<ReadBackend>> OpenUringBackend(const std::string& path, const ReadBackendOptions& options);
absl::StatusOr<std::unique_ptr<ReadBackend>> OpenDirectBackend(const std::string& path, const ReadBackendOptions& options);
absl::StatusOr<std::unique_ptr<ReadBackend>> OpenBufferedBackend(const std::string& path, const ReadBackendOptions& options);

// A broken precondition of Submit ends the process.
void CheckAligned(const ReadOp& op);

}  // namespace moed
