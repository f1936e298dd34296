#include "core/base/trace.h"

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moed {
namespace {

nlohmann::json Written(const Trace& trace) {
  std::string path = testing::TempDir() + "moed_trace_XXXXXX";
  const int descriptor = mkstemp(path.data());
  EXPECT_GE(descriptor, 0);
  close(descriptor);
  EXPECT_EQ(trace.WriteJson(path), absl::OkStatus());
  std::ifstream file(path);
  nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  std::remove(path.c_str());
  EXPECT_FALSE(json.is_discarded());
  return json;
}

// The complete events ("X"), in order.
std::vector<nlohmann::json> CompleteEvents(const nlohmann::json& json) {
  std::vector<nlohmann::json> events;
  for (const nlohmann::json& event : json.at("traceEvents")) {
    if (event.at("ph") == "X") events.push_back(event);
  }
  return events;
}

TEST(TraceTest, SpansRecordTheirTimeAndWhatTheyWereAbout) {
  FakeClock clock;
  Trace trace(clock, 10);
  {
    clock.AdvanceNanos(1'000);
    const TraceSpan read(&trace, "read", kReadTrack, LayerId(3), 17, 4096);
    clock.AdvanceNanos(2'500);
    const TraceSpan compute(&trace, "step", kComputeTrack);
    clock.AdvanceNanos(500);
  }
  const std::vector<nlohmann::json> events = CompleteEvents(Written(trace));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].at("name"), "step");
  EXPECT_EQ(events[0].at("tid"), kComputeTrack);
  EXPECT_DOUBLE_EQ(events[0].at("ts"), 3.5);
  EXPECT_DOUBLE_EQ(events[0].at("dur"), 0.5);
  EXPECT_EQ(events[1].at("name"), "read");
  EXPECT_EQ(events[1].at("tid"), kReadTrack);
  EXPECT_DOUBLE_EQ(events[1].at("ts"), 1.0);
  EXPECT_DOUBLE_EQ(events[1].at("dur"), 3.0);
  EXPECT_EQ(events[1].at("args"), (nlohmann::json{{"layer", 3}, {"expert", 17}, {"bytes", 4096}}));
}

TEST(TraceTest, TracksHaveNames) {
  FakeClock clock;
  const nlohmann::json json = Written(Trace(clock, 0));
  EXPECT_TRUE(CompleteEvents(json).empty());
  std::map<int, std::string> names;
  for (const nlohmann::json& event : json.at("traceEvents")) names[event.at("tid")] = event.at("args").at("name");
  EXPECT_THAT(names, testing::ElementsAre(testing::Pair(kComputeTrack, "compute"), testing::Pair(kReadTrack, "expert reads 1")));
}

// What is drawn in one row may only nest.
TEST(TraceTest, ReadsAtOnceAreDrawnBelowEachOther) {
  FakeClock clock;
  Trace trace(clock, 10);
  for (const auto& [begin, end] : {std::pair(4, 9), {0, 10}, {1, 12}, {9, 20}, {10, 11}}) {
    trace.Add({"read", kReadTrack, begin * 1000, end * 1000});
  }
  trace.Add({"step", kComputeTrack, 0, 20'000});
  std::map<int, std::string> rows;
  for (const nlohmann::json& event : CompleteEvents(Written(trace))) {
    rows[event.at("tid")] += std::to_string(event.at("ts").get<int>()) + " ";
  }
  EXPECT_THAT(rows, testing::ElementsAre(testing::Pair(kComputeTrack, "0 "), testing::Pair(kReadTrack, "0 10 "),
                                         testing::Pair(kReadTrack + 1, "1 "), testing::Pair(kReadTrack + 2, "4 9 ")));
}

TEST(TraceTest, KeepsTheFirstEventsAndCountsTheRest) {
  FakeClock clock;
  Trace trace(clock, 3);
  for (int i = 0; i < 10; ++i) trace.Add({"read", kReadTrack, i, i + 1});
  EXPECT_EQ(trace.dropped(), 7u);
  ASSERT_EQ(trace.Events().size(), 3u);
  EXPECT_EQ(trace.Events().back().begin_nanos, 2);
  EXPECT_EQ(Written(trace).at("otherData").at("dropped_events"), "7");
}

TEST(TraceTest, SumsUpTheComputeTrackByKindOfStep) {
  FakeClock clock;
  Trace trace(clock, 0);  // no room for events
  const auto spend = [&](const char* name, int track, int64_t nanos) {
    const TraceSpan span(&trace, name, track);
    clock.AdvanceNanos(nanos);
  };
  trace.BeginStep(StepKind::kPrefill);
  spend("attention", kComputeTrack, 5);
  spend("read", kReadTrack, 100);
  trace.BeginStep(StepKind::kDecode);
  spend("expert", kComputeTrack, 7);
  spend("attention", kComputeTrack, 2);
  spend("attention", kComputeTrack, 4);
  const std::vector<TracePart> parts = trace.Parts();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].name, "attention");
  EXPECT_THAT(parts[0].count, testing::ElementsAre(1, 2));
  EXPECT_THAT(parts[0].nanos, testing::ElementsAre(5, 6));
  EXPECT_EQ(parts[1].name, "expert");
  EXPECT_THAT(parts[1].count, testing::ElementsAre(0, 1));
  EXPECT_THAT(parts[1].nanos, testing::ElementsAre(0, 7));
}

TEST(TraceTest, HoursIntoTheDayNanosecondsAreKept) {
  FakeClock clock;
  Trace trace(clock, 1);
  const int64_t begin = int64_t{100} * 24 * 3600 * 1'000'000'000 + 123'456'789;
  trace.Add({"read", kReadTrack, begin, begin + 1});
  const nlohmann::json event = CompleteEvents(Written(trace)).at(0);
  EXPECT_NEAR(event.at("ts").get<double>(), static_cast<double>(begin) * 1e-3, 0.002);
  EXPECT_DOUBLE_EQ(event.at("dur"), 0.001);
}

TEST(TraceTest, ManyThreadsRecordAtOnce) {
  Trace trace(Clock::Real(), 1000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) const TraceSpan span(&trace, "read", kReadTrack);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(trace.Events().size(), 1000u);
  EXPECT_EQ(trace.dropped(), 200u);
  EXPECT_EQ(CompleteEvents(Written(trace)).size(), 1000u);
}

TEST(TraceTest, APlaceThatCannotBeWrittenIsAnError) {
  FakeClock clock;
  const Trace trace(clock, 0);
  const std::string missing = testing::TempDir() + "moed_no_such_folder/trace.json";
  EXPECT_EQ(trace.WriteJson(missing).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(trace.WriteJson("/dev/full").code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace moed
