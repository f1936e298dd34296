// What `moed doctor` looks at: rows of one table.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/executor.h"
#include "core/io/read_backend.h"
#include "core/machine/disk_read.h"
#include "core/machine/scratch_file.h"
#include "nlohmann/json.hpp"

namespace moed {

enum class CheckState : uint8_t { kOk, kSlower, kUnavailable };
std::string_view CheckStateName(CheckState state);  // "ok", "slower", "unavailable"

struct Finding {
  CheckState state = CheckState::kOk;
  std::string found;                                                 // what was read or measured, one line
  std::string remedy;                                                // "": there is none, or none is needed
  nlohmann::ordered_json values = nlohmann::ordered_json::object();  // docs/doctor.md names them
  bool prevents_serving = false;
};

// What is read from a disk to measure it: a file that was given, or a temporary one in a folder.
struct ProbedFile {
  std::string path;
  std::string_view kind;  // "store", "file", "temporary file"
  FileBlocks blocks;
  std::unique_ptr<ScratchFile> scratch;  // null: it was given
};
// INVALID_ARGUMENT: neither folder nor regular file, or a file that is shorter than a block. Errors of the kernel name the path.
// Writes a temporary file for about `seconds`.
absl::StatusOr<ProbedFile> OpenProbedFile(const std::string& path, double seconds, const Clock& clock);

struct Machine {
  std::string root;    // stands before /proc and /sys ("" on a real machine)
  std::string folder;  // of the file, absolute and without links
  absl::StatusOr<ProbedFile> file;
  double seconds = 1;  // of measuring the disk
  Clock& clock;
};

struct Check {
  std::string_view name;
  std::string_view title;
  Finding (*look)(const Machine& machine);
};
std::span<const Check> Checks();

// Those that the table is made of.
Finding LookAtMemoryLimit(const Machine& machine);
Finding LookAtLockedMemory(const Machine& machine);
Finding LookAtSwap(const Machine& machine);
Finding LookAtHugePages(const Machine& machine);
Finding LookAtMemoryBandwidth(const Machine& machine);
Finding LookAtProcessor(const Machine& machine);
Finding LookAtCuda(const Machine& machine);
Finding LookAtIoUring(const Machine& machine);
Finding LookAtSandbox(const Machine& machine);
Finding LookAtDirectIo(const Machine& machine);
Finding LookAtDiskBandwidth(const Machine& machine);

}  // namespace moed
