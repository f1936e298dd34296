// A file for what has no room in memory for a while. Implementations may lie in tests (full disk, failing read, flipped bit).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/io/file.h"

namespace moed {

// Thread-safe: positional reads and writes only.
class NamelessFile : public RandomAccessFile {
 public:
  // The whole of `bytes`, or the errno's code; a full disk, quota or limit of sizes is RESOURCE_EXHAUSTED.
  virtual absl::Status WriteAt(uint64_t offset, std::span<const std::byte> bytes) = 0;
};

// A file in `folder` that has no name: nobody opens it, and it is gone with the process, however that ends. Past the page cache
// (O_DIRECT): offsets, addresses and sizes are multiples of 4096. NOT_FOUND, PERMISSION_DENIED and the like name the folder;
// FAILED_PRECONDITION where its file system refuses O_DIRECT.
absl::StatusOr<std::unique_ptr<NamelessFile>> OpenNamelessFile(const std::string& folder);

}  // namespace moed
