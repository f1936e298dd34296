#include "core/io/read_queue.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/io/lying_file.h"
#include "tests/io/temp_file.h"

namespace moed {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr auto kDemand = ReadPriority::kDemand;
constexpr auto kPrefetch = ReadPriority::kPrefetch;
constexpr auto kIdle = ReadPriority::kIdle;

// Reads of no bytes, told apart by their offsets.
class ReadQueueTest : public testing::Test {
 protected:
  ReadTicket Submit(ReadQueue& queue, ReadPriority priority, uint64_t offset) {
    return queue.Submit(priority, offset, {},
                        [this, offset](absl::Status status) { outcomes_[offset].push_back(status.code()); });
  }

  FakeClock clock_;
  std::map<uint64_t, std::vector<absl::StatusCode>> outcomes_;  // by offset, every call of done
};

TEST_F(ReadQueueTest, DemandOvertakesQueuedPrefetchesInOrderOfArrival) {
  ManualReadBackend backend(1);
  ReadQueue queue(backend, clock_);
  for (const uint64_t offset : {1, 2, 3}) Submit(queue, kPrefetch, offset);
  for (const uint64_t offset : {4, 5}) Submit(queue, kDemand, offset);
  backend.CompleteAll();
  EXPECT_THAT(backend.submitted(), ElementsAre(1, 4, 5, 2, 3));
  for (const auto& [offset, codes] : outcomes_) EXPECT_THAT(codes, ElementsAre(absl::StatusCode::kOk)) << offset;
  EXPECT_EQ(outcomes_.size(), 5u);
}

TEST_F(ReadQueueTest, PromotionJoinsTheEndOfTheDemands) {
  ManualReadBackend backend(1);
  ReadQueue queue(backend, clock_);
  const ReadTicket in_flight = Submit(queue, kPrefetch, 1);
  Submit(queue, kPrefetch, 2);
  const ReadTicket promoted = Submit(queue, kPrefetch, 3);
  const ReadTicket demand = Submit(queue, kDemand, 4);
  Submit(queue, kDemand, 5);
  for (const ReadTicket ticket : {in_flight, promoted, promoted, demand, ReadTicket{999}}) queue.Promote(ticket);
  backend.CompleteAll();
  EXPECT_THAT(backend.submitted(), ElementsAre(1, 4, 5, 3, 2));
}

TEST_F(ReadQueueTest, OnlyQueuedReadsAreCancelled) {
  ManualReadBackend backend(1);
  ReadQueue queue(backend, clock_);
  const ReadTicket in_flight = Submit(queue, kDemand, 1);
  const ReadTicket demand = Submit(queue, kDemand, 2);
  const ReadTicket prefetch = Submit(queue, kPrefetch, 3);
  for (const ReadTicket queued : {demand, prefetch}) {
    EXPECT_TRUE(queue.Cancel(queued));
    EXPECT_FALSE(queue.Cancel(queued));
  }
  EXPECT_FALSE(queue.Cancel(in_flight));
  EXPECT_FALSE(queue.Cancel(999));
  for (const uint64_t offset : {2, 3}) EXPECT_THAT(outcomes_[offset], ElementsAre(absl::StatusCode::kCancelled));
  EXPECT_THAT(outcomes_[1], IsEmpty());
  backend.CompleteAll();
  EXPECT_FALSE(queue.Cancel(in_flight));
  EXPECT_THAT(backend.submitted(), ElementsAre(1));
  EXPECT_THAT(outcomes_[1], ElementsAre(absl::StatusCode::kOk));
  EXPECT_EQ(queue.stats().cancelled, 2u);
}

TEST_F(ReadQueueTest, TheBackendNeverHoldsMoreThanAllowed) {
  struct Limits {
    int backend, asked, expected;
  };
  for (const Limits& limits : {Limits{3, 0, 3}, Limits{3, 2, 2}, Limits{3, 1, 1}, Limits{3, 100, 3}}) {
    ManualReadBackend backend(limits.backend);
    ReadQueue queue(backend, clock_, {.max_in_flight = limits.asked});
    for (uint64_t offset = 0; offset < 10; ++offset) Submit(queue, offset % 2 ? kDemand : kPrefetch, offset);
    for (int left = 10; left > 0; --left) {
      EXPECT_EQ(backend.pending().size(), static_cast<size_t>(std::min(left, limits.expected)));
      backend.CompleteNext();
    }
  }
}

TEST_F(ReadQueueTest, TwoReadsOfOneRangeStayTwoReads) {
  ManualReadBackend backend(1);
  ReadQueue queue(backend, clock_);
  EXPECT_NE(Submit(queue, kDemand, 7), Submit(queue, kDemand, 7));
  backend.CompleteAll();
  EXPECT_THAT(backend.submitted(), ElementsAre(7, 7));
  EXPECT_EQ(outcomes_[7].size(), 2u);
}

TEST_F(ReadQueueTest, AnErrorReachesItsWaiterAndTheNextReadStarts) {
  ManualReadBackend backend(1);
  ReadQueue queue(backend, clock_);
  Submit(queue, kDemand, 1);
  Submit(queue, kDemand, 2);
  backend.CompleteNext(absl::DataLossError("ended early"));
  EXPECT_THAT(outcomes_[1], ElementsAre(absl::StatusCode::kDataLoss));
  EXPECT_THAT(backend.pending(), ElementsAre(2));
  backend.CompleteAll();
  EXPECT_THAT(outcomes_[2], ElementsAre(absl::StatusCode::kOk));
}

TEST_F(ReadQueueTest, WaitersMayUseTheQueue) {
  ManualReadBackend backend(1);
  ReadQueue queue(backend, clock_);
  uint64_t seen_reads = 0;
  queue.Submit(kDemand, 1, {}, [&](absl::Status) {
    seen_reads = queue.stats().reads;
    Submit(queue, kDemand, 2);
  });
  const ReadTicket cancelled = queue.Submit(kPrefetch, 3, {}, [&](absl::Status) { Submit(queue, kDemand, 4); });
  EXPECT_TRUE(queue.Cancel(cancelled));
  backend.CompleteAll();
  EXPECT_EQ(seen_reads, 1u);
  EXPECT_THAT(backend.submitted(), ElementsAre(1, 4, 2));
}

TEST_F(ReadQueueTest, StatisticsCountBytesAndBusyTime) {
  ManualReadBackend backend(2);
  ReadQueue queue(backend, clock_);
  const Buffer memory = Buffer::Allocate(4 * kPageBytes).value();
  const auto submit = [&](uint64_t offset, size_t pages) {
    queue.Submit(kDemand, offset, memory.span().first(pages * kPageBytes), [](absl::Status) {});
  };
  clock_.AdvanceNanos(1000);  // idle
  submit(1, 1);
  clock_.AdvanceNanos(10);
  submit(2, 2);
  clock_.AdvanceNanos(20);
  EXPECT_EQ(queue.stats().busy_nanos, 30);
  backend.Complete(1);
  clock_.AdvanceNanos(5);
  backend.Complete(2, absl::DataLossError("gone"));
  clock_.AdvanceNanos(1000);  // idle
  submit(3, 4);
  clock_.AdvanceNanos(7);
  backend.Complete(3);
  const ReadQueueStats stats = queue.stats();
  EXPECT_EQ(stats.busy_nanos, 42);
  EXPECT_EQ(stats.reads, 3u);
  EXPECT_EQ(stats.failed, 1u);
  EXPECT_EQ(stats.bytes, 5 * kPageBytes);
  EXPECT_EQ(stats.cancelled, 0u);
}

TEST_F(ReadQueueTest, DestructionCancelsTheQueuedAndWaitsForTheRest) {
  ManualReadBackend backend(1);
  auto queue = std::make_unique<ReadQueue>(backend, clock_);
  std::atomic<bool> destroyed{false};
  std::atomic<bool> answered_before{false};
  absl::Notification cancelled;
  queue->Submit(kDemand, 1, {}, [&](absl::Status status) { answered_before = status.ok() && !destroyed; });
  Submit(*queue, kDemand, 2);
  queue->Submit(kPrefetch, 3, {}, [&](absl::Status status) {
    outcomes_[3].push_back(status.code());
    cancelled.Notify();
  });
  std::thread destroyer([&] {
    queue.reset();
    destroyed = true;
  });
  cancelled.WaitForNotification();
  for (const uint64_t offset : {2, 3}) EXPECT_THAT(outcomes_[offset], ElementsAre(absl::StatusCode::kCancelled));
  EXPECT_FALSE(destroyed);
  EXPECT_THAT(backend.pending(), ElementsAre(1));
  backend.CompleteNext();
  destroyer.join();
  EXPECT_TRUE(answered_before);
  EXPECT_THAT(backend.submitted(), ElementsAre(1));
}

// Idle reads at offset 0, in pieces of a page; the others are at 1, 2, ...
class IdleReads : public ReadQueueTest {
 protected:
  static constexpr uint64_t kPage = kPageBytes;
  static constexpr ReadQueueOptions kInPages{.idle_piece_bytes = kPageBytes};

  ReadTicket SubmitPages(ReadQueue& queue, size_t pages) {
    return queue.Submit(kIdle, 0, memory_.span().first(pages * kPageBytes),
                        [this](absl::Status status) { outcomes_[0].push_back(status.code()); });
  }

  const Buffer memory_ = Buffer::Allocate(5 * kPageBytes).value();
};

TEST_F(IdleReads, ComePieceByPiece) {
  ManualReadBackend backend(8);
  ReadQueue queue(backend, clock_, kInPages);
  SubmitPages(queue, 5);
  for (uint64_t piece = 0; piece < 5; ++piece) {
    EXPECT_THAT(outcomes_[0], IsEmpty());
    EXPECT_EQ(backend.pending().size(), std::min<size_t>(kIdlePiecesInFlight, 5 - piece));
    ASSERT_TRUE(backend.Complete(piece * kPage));
  }
  EXPECT_THAT(outcomes_[0], ElementsAre(absl::StatusCode::kOk));
  EXPECT_EQ(queue.stats().reads, 1u);
  EXPECT_EQ(queue.stats().bytes, 5 * kPageBytes);
}

TEST_F(IdleReads, WaitWhileAnythingElseIsQueuedOrInFlight) {
  for (const ReadPriority other : {kDemand, kPrefetch}) {
    ManualReadBackend backend(3);
    ReadQueue queue(backend, clock_, kInPages);
    SubmitPages(queue, 4);
    for (const uint64_t offset : {1, 2}) Submit(queue, other, offset);
    EXPECT_THAT(backend.pending(), ElementsAre(0, kPage, 1));
    backend.Complete(0);
    EXPECT_THAT(backend.pending(), ElementsAre(kPage, 1, 2));
    backend.Complete(1);
    EXPECT_THAT(backend.pending(), ElementsAre(kPage, 2));
    backend.Complete(2);
    EXPECT_THAT(backend.pending(), ElementsAre(kPage, 2 * kPage));
    backend.CompleteAll();
    EXPECT_EQ(queue.stats().reads, 3u);
  }
}

TEST_F(IdleReads, WhatIsLeftOfAPromotedOneIsOneDemand) {
  ManualReadBackend backend(3);
  ReadQueue queue(backend, clock_, kInPages);
  const ReadTicket idle = SubmitPages(queue, 5);
  backend.Complete(0);
  queue.Promote(idle);
  EXPECT_THAT(backend.pending(), ElementsAre(kPage, 2 * kPage, 3 * kPage));
  backend.Complete(3 * kPage);
  backend.Complete(kPage);
  EXPECT_THAT(outcomes_[0], IsEmpty());
  backend.Complete(2 * kPage);
  EXPECT_THAT(outcomes_[0], ElementsAre(absl::StatusCode::kOk));
  EXPECT_THAT(backend.pending(), IsEmpty());
  EXPECT_EQ(queue.stats().bytes, 5 * kPageBytes);
}

TEST_F(IdleReads, CancelledOnesEndWithTheirPiecesInFlight) {
  ManualReadBackend backend(8);
  ReadQueue queue(backend, clock_, kInPages);
  const ReadTicket idle = SubmitPages(queue, 5);
  EXPECT_TRUE(queue.Cancel(idle));
  EXPECT_FALSE(queue.Cancel(idle));
  queue.Promote(idle);
  backend.Complete(kPage, absl::DataLossError("nobody asks any more"));
  EXPECT_THAT(outcomes_[0], IsEmpty());
  backend.Complete(0);
  EXPECT_THAT(outcomes_[0], ElementsAre(absl::StatusCode::kCancelled));
  EXPECT_THAT(backend.submitted(), ElementsAre(0, kPage));
  EXPECT_EQ(queue.stats().cancelled, 1u);
  EXPECT_EQ(queue.stats().cancelled_bytes, kPage);
  EXPECT_EQ(queue.stats().reads, 0u);
}

// Between two pieces nothing of a read may be in flight: while a demand is.
TEST_F(IdleReads, CancelledBetweenPiecesTheyEndAtOnce) {
  ManualReadBackend backend(8);
  ReadQueue queue(backend, clock_, kInPages);
  const ReadTicket idle = SubmitPages(queue, 5);
  Submit(queue, kDemand, 1);
  backend.Complete(0);
  backend.Complete(kPage);
  EXPECT_TRUE(queue.Cancel(idle));
  EXPECT_THAT(outcomes_[0], ElementsAre(absl::StatusCode::kCancelled));
  EXPECT_EQ(queue.stats().cancelled_bytes, 2 * kPage);
  backend.CompleteAll();
  EXPECT_THAT(backend.submitted(), ElementsAre(0, kPage, 1));
}

TEST_F(IdleReads, AfterAnErrorNoFurtherPieceIsRead) {
  ManualReadBackend backend(8);
  ReadQueue queue(backend, clock_, kInPages);
  const ReadTicket idle = SubmitPages(queue, 5);
  backend.Complete(kPage, absl::DataLossError("ended early"));
  EXPECT_THAT(outcomes_[0], IsEmpty());
  EXPECT_FALSE(queue.Cancel(idle));
  backend.Complete(0);
  EXPECT_THAT(outcomes_[0], ElementsAre(absl::StatusCode::kDataLoss));
  EXPECT_THAT(backend.submitted(), ElementsAre(0, kPage));
  EXPECT_EQ(queue.stats().failed, 1u);
}

TEST_F(IdleReads, DestructionWaitsForTheirPieces) {
  ManualReadBackend backend(8);
  auto queue = std::make_unique<ReadQueue>(backend, clock_, kInPages);
  SubmitPages(*queue, 5);
  std::thread destroyer([&] { queue.reset(); });
  while (backend.CompleteNext()) {
  }
  destroyer.join();
  EXPECT_EQ(outcomes_[0].size(), 1u);
}

// The rules once more, as plainly as they can be written.
struct NaiveQueue {
  struct Read {
    ReadTicket ticket;
    uint64_t offset;
  };
  size_t limit;
  std::vector<Read> demands, prefetches, in_flight;

  void Start() {
    while (in_flight.size() < limit && !(demands.empty() && prefetches.empty())) {
      std::vector<Read>& line = demands.empty() ? prefetches : demands;
      in_flight.push_back(line.front());
      line.erase(line.begin());
    }
  }
  static bool Take(std::vector<Read>& line, ReadTicket ticket, std::vector<Read>* to) {
    const auto found = std::find_if(line.begin(), line.end(), [&](const Read& read) { return read.ticket == ticket; });
    if (found == line.end()) return false;
    if (to != nullptr) to->push_back(*found);
    line.erase(found);
    return true;
  }
};

TEST_F(ReadQueueTest, RandomOperationsAgreeWithTheNaiveQueue) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    outcomes_.clear();
    const size_t limit = 1 + seed % 4;
    ManualReadBackend backend(static_cast<int>(limit));
    ReadQueue queue(backend, clock_);
    NaiveQueue naive{limit};
    std::vector<ReadTicket> tickets;
    std::map<uint64_t, absl::StatusCode> expected;
    for (uint64_t step = 0; step < 2000; ++step) {
      const ReadTicket ticket = tickets.empty() ? 0 : tickets[random() % tickets.size()];
      switch (random() % 8) {
        case 0:
        case 1:
        case 2: {
          const ReadPriority priority = random() % 3 ? kPrefetch : kDemand;
          tickets.push_back(Submit(queue, priority, step));
          (priority == kDemand ? naive.demands : naive.prefetches).push_back({tickets.back(), step});
          break;
        }
        case 3:
          queue.Promote(ticket);
          NaiveQueue::Take(naive.prefetches, ticket, &naive.demands);
          break;
        case 4: {
          std::vector<NaiveQueue::Read> cancelled;
          const bool queued =
              NaiveQueue::Take(naive.demands, ticket, &cancelled) || NaiveQueue::Take(naive.prefetches, ticket, &cancelled);
          ASSERT_EQ(queue.Cancel(ticket), queued);
          if (queued) expected[cancelled[0].offset] = absl::StatusCode::kCancelled;
          break;
        }
        default: {
          if (naive.in_flight.empty()) break;
          const NaiveQueue::Read read = naive.in_flight[random() % naive.in_flight.size()];
          const bool fails = random() % 5 == 0;
          NaiveQueue::Take(naive.in_flight, read.ticket, nullptr);
          ASSERT_TRUE(backend.Complete(read.offset, fails ? absl::DataLossError("as told") : absl::OkStatus()));
          expected[read.offset] = fails ? absl::StatusCode::kDataLoss : absl::StatusCode::kOk;
        }
      }
      naive.Start();
      std::vector<uint64_t> in_flight;
      for (const NaiveQueue::Read& read : naive.in_flight) in_flight.push_back(read.offset);
      ASSERT_EQ(backend.pending(), in_flight) << "seed " << seed << " step " << step;
    }
    backend.CompleteAll();
    for (const auto& [offset, code] : expected) ASSERT_THAT(outcomes_[offset], ElementsAre(code)) << "seed " << seed;
    EXPECT_EQ(outcomes_.size(), tickets.size());
    EXPECT_EQ(queue.stats().reads + queue.stats().cancelled, tickets.size());
  }
}

TEST(ReadQueueThreadsTest, EveryReadIsAnsweredOnceWhileManyThreadsSubmitPromoteAndCancel) {
  constexpr int kThreads = 4;
  constexpr size_t kReads = 300, kReadBytes = 4 * kPageBytes;
  const std::string contents = RandomContents(64 * kPageBytes, 41);
  auto backend = MakeThreadedReadBackend("memory", MakeMemoryFile("memory", contents), 3);
  auto queue = std::make_unique<ReadQueue>(*backend, Clock::Real(), ReadQueueOptions{.idle_piece_bytes = kPageBytes});
  std::vector<std::atomic<int>> answers(kThreads * kReads);
  std::atomic<int> wrong{0};
  std::vector<Buffer> memory;
  for (int t = 0; t < kThreads; ++t) memory.push_back(Buffer::Allocate(kReads * kReadBytes).value());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (size_t i = 0; i < kReads; ++i) {
        const uint64_t offset = random() % 60 * kPageBytes;
        const std::span<std::byte> out = memory[t].span().subspan(i * kReadBytes, kReadBytes);
        const auto priority = static_cast<ReadPriority>(random() % 3);
        const ReadTicket ticket = queue->Submit(priority, offset, out, [&, t, i, offset, out](absl::Status status) {
          ++answers[t * kReads + i];
          if (status.ok() && AsText(out) != std::string_view(contents).substr(offset, kReadBytes)) ++wrong;
          if (!status.ok() && status.code() != absl::StatusCode::kCancelled) ++wrong;
        });
        if (random() % 4 == 0) queue->Promote(ticket);
        if (random() % 4 == 0) queue->Cancel(ticket);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  queue.reset();
  for (const std::atomic<int>& count : answers) ASSERT_EQ(count, 1);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace moed
