#include "core/io/throttled_backend.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/io/temp_file.h"

namespace moed {
namespace {

constexpr size_t kPages = 24;

std::unique_ptr<ReadBackend> OpenThrottled(const std::string& path, double bytes_per_second) {
  auto device = OpenReadBackend("buffered", path, {.queue_depth = 4});
  EXPECT_TRUE(device.ok());
  return MakeThrottledBackend(*std::move(device), bytes_per_second, Clock::Real());
}

TEST(ThrottledBackendTest, ReadsWhatItsDeviceReadsInTheOrderOfSubmission) {
  const std::string contents = RandomContents(kPages * kPageBytes, 3);
  const TempFile file(contents);
  const Buffer destination = Buffer::Allocate(kPages * kPageBytes).value();
  absl::Mutex mutex;
  std::vector<size_t> answered;
  {
    const auto backend = OpenThrottled(file.path(), 1e12);
    for (size_t i = 0; i < kPages; ++i) {
      const size_t page = (i * 7) % kPages;
      backend->Submit({page * kPageBytes, destination.span().subspan(page * kPageBytes, kPageBytes), [&, i](absl::Status status) {
                         EXPECT_EQ(status, absl::OkStatus());
                         absl::MutexLock lock(&mutex);
                         answered.push_back(i);
                       }});
    }
  }  // its end waits for every answer
  ASSERT_EQ(answered.size(), kPages);
  for (size_t i = 0; i < kPages; ++i) EXPECT_EQ(answered[i], i);
  EXPECT_TRUE(AsText(destination.span()) == contents);
}

TEST(ThrottledBackendTest, NeverAnswersBeforeTheSlowerDeviceCould) {
  const TempFile file(RandomContents(kPages * kPageBytes, 4));
  const Buffer destination = Buffer::Allocate(kPages * kPageBytes).value();
  constexpr double kRate = 10e6;
  absl::Mutex mutex;
  std::vector<int64_t> at;
  const int64_t start = Clock::Real().NowNanos();
  {
    const auto backend = OpenThrottled(file.path(), kRate);
    EXPECT_THAT(backend->description(), testing::HasSubstr("10 MB/s"));
    for (size_t page = 0; page < kPages; ++page) {
      backend->Submit({page * kPageBytes, destination.span().subspan(page * kPageBytes, kPageBytes), [&](absl::Status) {
                         absl::MutexLock lock(&mutex);
                         at.push_back(Clock::Real().NowNanos());
                       }});
    }
  }
  ASSERT_EQ(at.size(), kPages);
  for (size_t i = 0; i < kPages; ++i) {
    EXPECT_GE(SecondsBetween(start, at[i]), static_cast<double>((i + 1) * kPageBytes) / kRate * (1 - 1e-6)) << i;
  }
}

TEST(ThrottledBackendTest, PassesErrorsOn) {
  const TempFile file(RandomContents(kPageBytes, 5));
  const auto backend = OpenThrottled(file.path(), 1e12);
  const Buffer destination = Buffer::Allocate(kPageBytes).value();
  EXPECT_EQ(ReadNow(*backend, 4 * kPageBytes, destination.span()).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadNow(*backend, 0, destination.span()), absl::OkStatus());
}

}  // namespace
}  // namespace moed
