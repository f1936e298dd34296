#include "core/store/sample_checksum.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/io/file.h"
#include "core/store/checksum.h"

namespace moed {
namespace {

constexpr uint64_t kEndSampleBytes = 64 << 10;
constexpr uint64_t kSampleBytes = 4 << 10;
constexpr uint64_t kSamplesBetween = 16;

}  // namespace

absl::StatusOr<uint64_t> SampleChecksum(const std::string& path) {
  MOED_ASSIGN_OR_RETURN(const auto file, OpenBuffered(path));
  const uint64_t size = file->size();
  std::vector<std::byte> bytes(std::min(size, kEndSampleBytes));
  ChecksumStream stream;
  const auto add = [&](uint64_t offset, uint64_t count) {
    const auto sample = std::span(bytes).first(count);
    const absl::Status read = file->ReadAt(offset, sample);
    stream.Update(sample);
    return read;
  };
  MOED_RETURN_IF_ERROR(add(0, bytes.size()));
  MOED_RETURN_IF_ERROR(add(size - bytes.size(), bytes.size()));
  for (uint64_t i = 1; size > 2 * kEndSampleBytes && i <= kSamplesBetween; ++i) {
    MOED_RETURN_IF_ERROR(add(size / (kSamplesBetween + 1) * i, kSampleBytes));
  }
  return stream.Value();
}

}  // namespace moed
