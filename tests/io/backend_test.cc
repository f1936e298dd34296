#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "core/io/read_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/address_space_limit.h"
#include "tests/io/temp_file.h"

namespace moed {
namespace {

using testing::HasSubstr;

constexpr size_t kPages = 256;

std::vector<std::string> AllNames() {
  std::vector<std::string> names{"auto"};
  for (const ReadBackendRow& row : ReadBackends()) names.emplace_back(row.name);
  return names;
}

Buffer Pages(size_t count) { return Buffer::Allocate(count * kPageBytes).value(); }

// A backend that this machine does not allow must say which facility was refused; these two always work.
bool ExplainedRefusal(const std::string& name, const absl::Status& status) {
  EXPECT_NE(name, "auto") << status;
  EXPECT_NE(name, "buffered") << status;
  EXPECT_THAT(MessageOf(status),
              testing::ContainsRegex(name == "direct" ? "refuses O_DIRECT" : "refuses O_DIRECT|cannot set up io_uring"));
  return true;
}

class BackendTest : public testing::TestWithParam<std::string> {
 protected:
  BackendTest() : contents_(RandomContents(kPages * kPageBytes, 11)), file_(contents_) {}

  absl::StatusOr<std::unique_ptr<ReadBackend>> Open(int queue_depth) {
    return OpenReadBackend(GetParam(), file_.path(), {.queue_depth = queue_depth});
  }
  std::string_view Expected(uint64_t offset, size_t size) const { return std::string_view(contents_).substr(offset, size); }

  const std::string contents_;
  const TempFile file_;
};

#define OPEN_OR_SKIP(backend, queue_depth)                                                            \
  auto opened = Open(queue_depth);                                                                    \
  if (!opened.ok() && ExplainedRefusal(GetParam(), opened.status())) GTEST_SKIP() << opened.status(); \
  std::unique_ptr<ReadBackend> backend = *std::move(opened)

TEST_P(BackendTest, SaysWhatItIs) {
  OPEN_OR_SKIP(backend, 3);
  if (GetParam() != "auto") {
    EXPECT_EQ(backend->name(), GetParam());
  }
  EXPECT_THAT(backend->description(), HasSubstr("3"));
  EXPECT_EQ(backend->max_in_flight(), 3);
}

TEST_P(BackendTest, ReadsEveryAlignedRange) {
  OPEN_OR_SKIP(backend, 2);
  const Buffer destination = Pages(kPages);
  for (const size_t pages : {size_t{1}, size_t{2}, size_t{7}, kPages}) {
    for (size_t first = 0; first + pages <= kPages; ++first) {
      const std::span<std::byte> out = destination.span().first(pages * kPageBytes);
      ASSERT_EQ(ReadNow(*backend, first * kPageBytes, out), absl::OkStatus());
      ASSERT_TRUE(AsText(out) == Expected(first * kPageBytes, out.size())) << "first page " << first << ", pages " << pages;
    }
  }
}

TEST_P(BackendTest, AnEmptyReadSucceeds) {
  OPEN_OR_SKIP(backend, 1);
  EXPECT_EQ(ReadNow(*backend, 0, {}), absl::OkStatus());
}

TEST_P(BackendTest, ManyReadsAtOnceFromManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kReadsPerThread = 125;
  constexpr size_t kMostPages = 16;
  OPEN_OR_SKIP(backend, 4);
  absl::BlockingCounter answered(kThreads * kReadsPerThread);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  std::vector<Buffer> memory;
  for (int t = 0; t < kThreads; ++t) memory.push_back(Pages(kReadsPerThread * kMostPages));
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < kReadsPerThread; ++i) {
        const size_t bytes = (1 + random() % kMostPages) * kPageBytes;
        const uint64_t offset = random() % (kPages - bytes / kPageBytes + 1) * kPageBytes;
        const std::span<std::byte> out = memory[t].span().subspan(i * kMostPages * kPageBytes, bytes);
        backend->Submit({offset, out, [&, offset, out](absl::Status status) {
                           if (!status.ok() || AsText(out) != Expected(offset, out.size())) ++wrong;
                           answered.DecrementCount();
                         }});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  answered.Wait();
  EXPECT_EQ(wrong, 0);
}

TEST_P(BackendTest, DestructionAnswersEverything) {
  OPEN_OR_SKIP(backend, 2);
  constexpr int kReads = 60;
  const Buffer destination = Pages(kReads);
  std::atomic<int> right{0};
  for (int i = 0; i < kReads; ++i) {
    const uint64_t offset = i * kPageBytes;
    const std::span<std::byte> out = destination.span().subspan(offset, kPageBytes);
    backend->Submit({offset, out, [&, offset, out](absl::Status status) {
                       right += status.ok() && AsText(out) == Expected(offset, out.size());
                     }});
  }
  backend.reset();
  EXPECT_EQ(right, kReads);
}

TEST_P(BackendTest, AnAnswerMaySubmitTheNextRead) {
  OPEN_OR_SKIP(backend, 1);
  const Buffer destination = Pages(1);
  constexpr uint64_t kReads = 20;
  uint64_t answers = 0;
  absl::Notification finished;
  std::function<void(absl::Status)> next = [&](absl::Status status) {
    EXPECT_EQ(status, absl::OkStatus());
    EXPECT_EQ(AsText(destination.span()), Expected(answers * kPageBytes, kPageBytes));
    if (++answers == kReads) return finished.Notify();
    backend->Submit({answers * kPageBytes, destination.span(), next});
  };
  backend->Submit({0, destination.span(), next});
  finished.WaitForNotification();
  EXPECT_EQ(answers, kReads);
}

TEST_P(BackendTest, ReadingPastTheEndIsDataLoss) {
  OPEN_OR_SKIP(backend, 2);
  const Buffer destination = Pages(4);
  const absl::Status partly = ReadNow(*backend, (kPages - 1) * kPageBytes, destination.span());
  EXPECT_EQ(partly.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(partly), testing::AllOf(HasSubstr(file_.path()), HasSubstr("offset 1044480"), HasSubstr("wanted 16384"),
                                                HasSubstr("got 4096")));
  const absl::Status wholly = ReadNow(*backend, 2 * kPages * kPageBytes, destination.span());
  EXPECT_EQ(wholly.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(wholly), HasSubstr("got 0"));
  EXPECT_EQ(ReadNow(*backend, 0, destination.span()), absl::OkStatus());
}

INSTANTIATE_TEST_SUITE_P(Rows, BackendTest, testing::ValuesIn(AllNames()), [](const auto& info) { return info.param; });

class RaggedFileTest : public testing::TestWithParam<std::string> {};

TEST_P(RaggedFileTest, AnEndInsideAPageIsCountedToTheByte) {
  const std::string contents = RandomContents(3 * kPageBytes + 100, 12);
  const TempFile file(contents);
  auto backend = OpenReadBackend(GetParam(), file.path(), {});
  if (!backend.ok() && ExplainedRefusal(GetParam(), backend.status())) return;
  const Buffer destination = Pages(4);
  const absl::Status ended = ReadNow(**backend, kPageBytes, destination.span());
  EXPECT_EQ(ended.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(MessageOf(ended), HasSubstr("wanted 16384 bytes, got 8292"));
  EXPECT_EQ(AsText(destination.span()).substr(0, 8292), contents.substr(kPageBytes));
}

INSTANTIATE_TEST_SUITE_P(Rows, RaggedFileTest, testing::ValuesIn(AllNames()), [](const auto& info) { return info.param; });

TEST(BackendTableTest, AnUnknownNameListsTheKnownOnes) {
  const TempFile file(RandomContents(kPageBytes, 13));
  const absl::Status unknown = OpenReadBackend("mmap", file.path(), {}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(unknown), HasSubstr("'mmap'"));
  for (const std::string& name : AllNames()) EXPECT_THAT(MessageOf(unknown), HasSubstr(name));
}

TEST(BackendTableTest, EveryRowRefusesASenselessDepthAndAMissingFile) {
  const TempFile file(RandomContents(kPageBytes, 14));
  for (const std::string& name : AllNames()) {
    for (const int depth : {-1, 0, 100'000}) {
      const absl::Status refused = OpenReadBackend(name, file.path(), {.queue_depth = depth}).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << name;
      EXPECT_THAT(MessageOf(refused), HasSubstr(std::to_string(depth)));
    }
    const absl::Status missing = OpenReadBackend(name, file.path() + ".missing", {}).status();
    EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << name;
    EXPECT_THAT(MessageOf(missing), HasSubstr(file.path() + ".missing"));
  }
}

// A page that nobody may write stands for memory of a driver that the kernel cannot read into past its cache.
TEST(BackendTableTest, WhatReadsGoToIsTriedBeforeABackendIsTaken) {
  const TempFile file(RandomContents(kPageBytes, 5));
  void* const page = mmap(nullptr, kPageBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const ReadBackendOptions options = {.probe = {static_cast<std::byte*>(page), kPageBytes}};
  const auto chosen = OpenReadBackend("auto", file.path(), options);
  ASSERT_EQ(chosen.status(), absl::OkStatus());
  EXPECT_EQ((*chosen)->name(), "buffered");
  EXPECT_THAT((*chosen)->description(), HasSubstr("; direct: "));
  for (const char* name : {"io_uring", "direct"}) {
    EXPECT_FALSE(OpenReadBackend(name, file.path(), options).ok()) << name;
  }
  munmap(page, kPageBytes);
}

TEST(BackendTableTest, ThreadsAreBounded) {
  const TempFile file(RandomContents(kPageBytes, 15));
  auto backend = OpenReadBackend("buffered", file.path(), {.queue_depth = 64});
  ASSERT_EQ(backend.status(), absl::OkStatus());
  EXPECT_EQ((*backend)->max_in_flight(), 8);
}

TEST(BackendTableTest, WhereAThreadCannotBeMadeThoseBeforeItEnd) {
  const TempFile file(RandomContents(kPageBytes, 16));
  const AddressSpaceLimit limit(20 << 20);
  EXPECT_THROW(OpenReadBackend("buffered", file.path(), {.queue_depth = 8}).IgnoreError(), std::system_error);
}

}  // namespace
}  // namespace moed
