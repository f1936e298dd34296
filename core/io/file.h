// Files that are read at random. Implementations may lie in tests (short read, EIO, flipped bit, late answer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moed {

// Thread-safe: positional reads only.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  virtual uint64_t size() const = 0;
  virtual const std::string& path() const = 0;
  // Fills `out` from `offset`, or: DATA_LOSS for an end of file before that (names path, offset, wanted, got), the errno's code
  // otherwise.
  virtual absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const = 0;
};

// Through the page cache, for headers and trunks of any alignment.
absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenBuffered(const std::string& path);
// Nothing has this name. What is there and cannot be opened or read is not absent.
bool IsAbsent(const std::string& path);
// In memory; tests.
std::unique_ptr<RandomAccessFile> MakeMemoryFile(std::string name, std::string contents);

}  // namespace moed
