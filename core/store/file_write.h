// Writing with whole-or-error semantics; every error names the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace moed {

// The whole of `bytes`, or the errno's code; a full disk is RESOURCE_EXHAUSTED.
absl::Status WriteAt(int fd, const std::string& path, uint64_t offset, std::span<const std::byte> bytes);
absl::Status SyncData(int fd, const std::string& path);
// Makes creations, renames and removals in the folder of `path` durable.
absl::Status SyncFolderOf(const std::string& path);

// The file is replaced as a whole: whoever reads it, after a crash too, sees the one before or what `write` has written to `fd`,
// the file `partial`. Where that fails the one before stays, and nothing is left of the new one.
absl::Status ReplaceFile(const std::string& path, absl::FunctionRef<absl::Status(int fd, const std::string& partial)> write);

// "cannot <verb> <path>: <reason>"; running out of space says so.
absl::Status WriteError(int error_number, std::string_view verb, const std::string& path);

}  // namespace moed
