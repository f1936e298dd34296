// How bytes get from a file into aligned slots: rows of one table.
//   io_uring   O_DIRECT through io_uring
//   direct     O_DIRECT pread on a few threads
//   buffered   pread through the page cache on a few threads (file systems that refuse O_DIRECT)
//   auto       the first of these that this file and this kernel allow; describes what it took and why
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/io/file.h"

namespace moed {

struct ReadOp {
  uint64_t offset = 0;               // multiple of 4096
  std::span<std::byte> destination;  // address and size multiples of 4096
  // Runs exactly once, on a thread of the backend, must not block. DATA_LOSS: the file ended early. Other errors carry errno's
  // code.
  std::function<void(absl::Status)> done;
  bool goes_on = false;  // what lies before it was given before as a piece of the same read
};

// Thread-safe. Destruction waits for reads in flight.
class ReadBackend {
 public:
  virtual ~ReadBackend() = default;
  virtual std::string_view name() const = 0;           // "io_uring"
  virtual const std::string& description() const = 0;  // one line for the log: what was taken and why not the others
  virtual int max_in_flight() const = 0;               // more than this only waits; callers keep their own queue
  virtual void Submit(ReadOp op) = 0;
};

struct ReadBackendOptions {
  int queue_depth = 8;  // io_uring entries, or threads of the others (at most 8)
  // A page of the memory that reads go to, where that is no ordinary memory: one with O_DIRECT is tried into it at the start.
  std::span<std::byte> probe;
};

struct ReadBackendRow {
  std::string_view name;
  absl::StatusOr<std::unique_ptr<ReadBackend>> (*open)(const std::string& path, const ReadBackendOptions& options);
};
std::span<const ReadBackendRow> ReadBackends();  // io_uring, direct, buffered
// `name` from the table or "auto". INVALID_ARGUMENT lists the known names; a named backend that cannot work here fails with the
// reason (never another one instead).
absl::StatusOr<std::unique_ptr<ReadBackend>> OpenReadBackend(std::string_view name, const std::string& path,
                                                             const ReadBackendOptions& options);

// Reads `file` on `threads` own threads; tests hand it a file that lies or is slow.
std::unique_ptr<ReadBackend> MakeThreadedReadBackend(std::string name, std::shared_ptr<const RandomAccessFile> file, int threads);

}  // namespace moed
