// Writing with whole-or-error semantics; every error names the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace moed {

// The whole of `bytes`, or the errno's code; a full disk is RESOURCE_EXHAUSTED.
absl::Status WriteAt(int fd, const std::string& path, uint64_t offset, std::span<const std::byte> bytes);
absl::Status SyncData(int fd, const std::string& path);
// Makes creations, renames and removals in the folder of `path` durable.
absl::Status SyncFolderOf(const std::string& path);

// "cannot <verb> <path>: <reason>"; running out of space says so.
absl::Status WriteError(int error_number, std::string_view verb, const std::string& path);

}  // namespace moed
