// What of an unfinished store is already safely on disk. An append-only file beside it:
//   header  "MOEDJRNL", u64 identity, u64 XXH3-64 of these 16 bytes
//   entry   u64 piece (layout.h), u64 its checksum, u64 XXH3-64 of these 16 bytes with the identity in front
// Entries are appended only after their pieces were synced. Reading ends at the first entry that is not whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moed {

struct JournalEntry {
  uint64_t piece = 0;
  uint64_t checksum = 0;
};

struct JournalContents {
  uint64_t identity = 0;
  std::vector<JournalEntry> entries;
};

// Owns the file descriptor; not synchronised.
class Journal {
 public:
  // nullopt when there is no journal or its header is not whole; an error where there is one that cannot be read.
  static absl::StatusOr<std::optional<JournalContents>> Read(const std::string& path);
  // Starts (over) with these contents; synced.
  static absl::StatusOr<Journal> Create(const std::string& path, const JournalContents& contents);

  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&&) = delete;
  ~Journal();

  // Synced when it returns.
  absl::Status Append(const std::vector<JournalEntry>& entries);

 private:
  Journal(std::string path, int fd, uint64_t identity) : path_(std::move(path)), fd_(fd), identity_(identity) {}

  std::string path_;
  int fd_ = -1;
  uint64_t identity_ = 0;
};

}  // namespace moed
