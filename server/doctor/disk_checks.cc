#include <algorithm>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/io/io_uring_check.h"
#include "core/machine/system_files.h"
#include "core/store/store.h"
#include "server/doctor/check.h"

namespace moed {
namespace {

constexpr size_t kBlockBytes = 4 << 20;  // an expert of a larger model
constexpr uint64_t kLeastScratchBytes = 32 << 20;
constexpr uint64_t kMostScratchBytes = 256 << 20;

// The reason stands in front; nothing was measured.
Finding Unmeasured(const absl::Status& status) {
  return {.state = CheckState::kUnavailable,
          .found = StrCat(status.message()),
          .remedy = "moed doctor --path with a store, or with a folder that can be written to"};
}

std::string UringRemedy(const absl::Status& refusal, uint64_t disabled) {
  if (disabled > 0) return "sysctl -w kernel.io_uring_disabled=0";
  if (absl::IsPermissionDenied(refusal)) return "in a container: --security-opt seccomp=deploy/seccomp/moed.json";
  if (absl::IsResourceExhausted(refusal)) return "raise the locked memory limit: ulimit -l 64";
  return "a kernel from 5.6 on, and no seccomp filter that hides io_uring";
}

absl::StatusOr<std::unique_ptr<ReadBackend>> OpenReads(const ProbedFile& file) {
  return OpenReadBackend("auto", file.path, {.queue_depth = DiskReadLimits{}.depth});
}

}  // namespace

absl::StatusOr<ProbedFile> OpenProbedFile(const std::string& path, double seconds, const Clock& clock) {
  std::error_code error;
  ProbedFile file{.path = path, .kind = "file", .blocks = {.bytes = kBlockBytes}};
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::directory) {
    const ScratchFile::Size size{.least = kLeastScratchBytes, .most = kMostScratchBytes, .seconds = seconds};
    MOED_ASSIGN_OR_RETURN(file.scratch, ScratchFile::Create(path, size, clock));
    file.kind = "temporary file";
    file.path = file.scratch->path();
    file.blocks.count = file.scratch->bytes() / kBlockBytes;
    return file;
  }
  if (error) return absl::Status(absl::ErrnoToStatusCode(error.value()), StrCat("cannot open ", path, ": ", error.message()));
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> opened, OpenBuffered(path));
  uint64_t end = opened->size();
  if (const auto store = StoreReader::Open(path); store.ok()) {
    file.kind = "store";
    file.blocks.offset = (*store)->layout().records_offset();
    file.blocks.bytes = (*store)->largest_stored_bytes(kReferencePrecision);
    end = std::min(end, file.blocks.offset + (*store)->all_expert_bytes());
  }
  file.blocks.count = (end - file.blocks.offset) / file.blocks.bytes;
  if (file.blocks.count == 0) return InvalidArgument(path, " is shorter than a block of ", FormatBytes(file.blocks.bytes));
  return file;
}

Finding LookAtIoUring(const Machine& machine) {
  Finding finding;
  const std::optional<uint64_t> disabled = ReadNumber(machine.root + "/proc/sys/kernel/io_uring_disabled");
  if (disabled.has_value()) finding.values["io_uring_disabled"] = *disabled;
  const absl::Status refusal = CheckIoUring();
  finding.values["available"] = refusal.ok();
  finding.found = "available";
  if (refusal.ok()) return finding;
  finding.state = CheckState::kSlower;
  finding.found = StrCat(refusal.message(), "; moed reads with threads instead");
  finding.remedy = UringRemedy(refusal, disabled.value_or(0));
  return finding;
}

Finding LookAtDirectIo(const Machine& machine) {
  if (!machine.file.ok()) return Unmeasured(machine.file.status());
  Finding finding;
  const std::string file_system = FileSystemOf(machine.root, machine.folder).value_or("an unknown file system");
  finding.values["folder"] = machine.folder;
  finding.values["file_system"] = file_system;
  const auto reads = OpenReads(*machine.file);
  if (!reads.ok()) {
    finding.state = CheckState::kUnavailable;
    finding.prevents_serving = true;
    finding.found = StrCat(reads.status().message());
    finding.remedy = "keep the store where it can be read";
    return finding;
  }
  finding.values["read_backend"] = (*reads)->name();
  finding.found = StrCat(machine.folder, " (", file_system, "): ", (*reads)->name());
  if ((*reads)->name() == "buffered") {
    finding.state = CheckState::kSlower;
    finding.found += ", through the page cache: O_DIRECT is refused";
    finding.remedy =
        "keep the store on a file system with O_DIRECT (ext4, xfs, btrfs): reads are copied, and fill the page cache";
  } else if (file_system == "tmpfs" || file_system == "ramfs") {
    finding.state = CheckState::kSlower;
    finding.remedy = "this is memory, which the store takes beside the budget: keep it on a disk";
  }
  return finding;
}

Finding LookAtDiskBandwidth(const Machine& machine) {
  if (!machine.file.ok()) return Unmeasured(machine.file.status());
  const ProbedFile& file = *machine.file;
  const auto reads = OpenReads(file);
  if (!reads.ok()) return Unmeasured(reads.status());
  const auto measured = MeasureDiskRead(**reads, file.blocks, {.seconds = machine.seconds}, machine.clock);
  if (!measured.ok()) return Unmeasured(measured.status());
  Finding finding;
  const bool cached = (*reads)->name() == "buffered";
  finding.values = {{"bytes_per_second", measured->BytesPerSecond()},
                    {"single_bytes_per_second", measured->OneBytesPerSecond()},
                    {"queue_depth", measured->depth},
                    {"block_bytes", measured->block_bytes},
                    {"measured", file.kind},
                    {"page_cache", cached}};
  finding.found = absl::StrFormat("%.2f GB/s with %d reads of %s at once, %.2f GB/s one at a time (%s)",
                                  measured->BytesPerSecond() * 1e-9, measured->depth, FormatBytes(measured->block_bytes),
                                  measured->OneBytesPerSecond() * 1e-9, std::string(file.kind));
  if (cached) {
    finding.state = CheckState::kSlower;
    finding.found += "; this is the page cache, not the disk";
  }
  return finding;
}

}  // namespace moed
