#include "core/io/metered_backend.h"

#include <memory>
#include <span>
#include <string>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "tests/io/temp_file.h"

namespace moed {
namespace {

constexpr size_t kPages = 24;

// Reads all pages at once; how many ended with OK and with CANCELLED, once `most_pages` (of those that were answered) are enough.
struct Outcome {
  size_t read = 0;
  size_t given_up = 0;
  uint64_t bytes = 0;
};
Outcome ReadAll(const std::string& path, std::span<std::byte> destination, size_t most_pages) {
  auto device = OpenReadBackend("buffered", path, {.queue_depth = 2});
  EXPECT_TRUE(device.ok());
  Outcome outcome;
  absl::Mutex mutex;
  {
    const auto metered = MakeMeteredBackend(**device, [&](uint64_t bytes) {
      outcome.bytes += bytes;
      return outcome.bytes >= most_pages * kPageBytes ? absl::CancelledError("enough") : absl::OkStatus();
    });
    EXPECT_EQ(metered->name(), "buffered");
    for (size_t page = 0; page < kPages; ++page) {
      metered->Submit({page * kPageBytes, destination.subspan(page * kPageBytes, kPageBytes), [&](const absl::Status& status) {
                         EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
                         absl::MutexLock lock(&mutex);
                         ++(status.ok() ? outcome.read : outcome.given_up);
                       }});
    }
  }  // its end waits for every answer
  return outcome;
}

TEST(MeteredBackendTest, CountsWhatItsDeviceReads) {
  const std::string contents = RandomContents(kPages * kPageBytes, 5);
  const TempFile file(contents);
  const Buffer destination = Buffer::Allocate(kPages * kPageBytes).value();
  const Outcome outcome = ReadAll(file.path(), destination.span(), kPages + 1);
  EXPECT_EQ(outcome.read, kPages);
  EXPECT_EQ(outcome.bytes, kPages * kPageBytes);
  EXPECT_TRUE(AsText(destination.span()) == contents);
}

TEST(MeteredBackendTest, GivesUpWhatHasNotReachedTheDevice) {
  const TempFile file(RandomContents(kPages * kPageBytes, 6));
  const Buffer destination = Buffer::Allocate(kPages * kPageBytes).value();
  for (const size_t most : {size_t{1}, kPages / 2, kPages}) {
    const Outcome outcome = ReadAll(file.path(), destination.span(), most);
    EXPECT_EQ(outcome.read + outcome.given_up, kPages);
    EXPECT_GE(outcome.read, most);
  }
}

}  // namespace
}  // namespace moed
