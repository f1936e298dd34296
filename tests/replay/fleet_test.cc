#include "bench/replay/fleet.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moed {
namespace {

constexpr size_t kTopics = 10, kEach = 6;

std::vector<TraceSequence> Sequences() {
  std::vector<TraceSequence> sequences;
  for (size_t i = 0; i < kTopics * kEach; ++i) sequences.push_back({i * 8, 8, "topic " + std::to_string(i % kTopics)});
  return sequences;
}

BoxRequests Of(size_t box, size_t boxes, Balance balance, size_t most = 1000) {
  absl::StatusOr<BoxRequests> requests = RequestsOfBox(Sequences(), box, boxes, most, balance, 1);
  EXPECT_TRUE(requests.ok()) << requests.status();
  return *std::move(requests);
}

std::vector<TraceSequence> All(const BoxRequests& requests) {
  std::vector<TraceSequence> all = requests.warming;
  all.insert(all.end(), requests.measured.begin(), requests.measured.end());
  return all;
}

std::set<std::string> TopicsOf(const BoxRequests& requests) {
  std::set<std::string> topics;
  for (const TraceSequence& sequence : All(requests)) topics.insert(sequence.category);
  return topics;
}

std::set<size_t> FirstTokens(const BoxRequests& requests) {
  std::set<size_t> tokens;
  for (const TraceSequence& sequence : All(requests)) tokens.insert(sequence.first);
  return tokens;
}

TEST(Fleet, FewBoxesShareOutAllTopicsAndManyHaveOneEach) {
  std::set<std::string> seen;
  for (size_t box = 0; box < 3; ++box) {
    for (const std::string& topic : TopicsOf(Of(box, 3, Balance::kTopic))) EXPECT_TRUE(seen.insert(topic).second) << topic;
  }
  EXPECT_EQ(seen.size(), kTopics);
  seen.clear();
  for (size_t box = 0; box < 25; ++box) {
    const std::set<std::string> topics = TopicsOf(Of(box, 25, Balance::kTopic));
    EXPECT_EQ(topics.size(), 1u);
    seen.insert(topics.begin(), topics.end());
  }
  EXPECT_EQ(seen.size(), kTopics);
}

TEST(Fleet, BothBalancesGiveABoxAsManySequencesAndNoneTwice) {
  for (const size_t boxes : {1, 3, 10, 25}) {
    for (size_t box = 0; box < boxes; ++box) {
      const BoxRequests by_topic = Of(box, boxes, Balance::kTopic), any = Of(box, boxes, Balance::kAny);
      EXPECT_EQ(All(by_topic).size(), All(any).size());
      EXPECT_EQ(by_topic.warming.size(), any.warming.size());
      for (const BoxRequests* requests : {&by_topic, &any}) {
        EXPECT_EQ(FirstTokens(*requests).size(), All(*requests).size());
        EXPECT_FALSE(requests->warming.empty());
        EXPECT_FALSE(requests->measured.empty());
      }
    }
  }
  EXPECT_GT(TopicsOf(Of(0, 10, Balance::kAny)).size(), 1u);
}

TEST(Fleet, NoMoreThanAskedForAndTheSameAgain) {
  EXPECT_EQ(All(Of(0, 2, Balance::kTopic, 5)).size(), 5u);
  EXPECT_EQ(FirstTokens(Of(1, 2, Balance::kAny, 5)), FirstTokens(Of(1, 2, Balance::kAny, 5)));
  EXPECT_NE(FirstTokens(Of(0, 2, Balance::kAny, 5)), FirstTokens(Of(1, 2, Balance::kAny, 5)));
}

TEST(Fleet, TracesWithoutTopicsAreRefused) {
  std::vector<TraceSequence> sequences = Sequences();
  sequences[7].category.clear();
  EXPECT_THAT(RequestsOfBox(sequences, 0, 3, 9, Balance::kAny, 1).status().message(), testing::HasSubstr("no category"));
  sequences = {{0, 8, "alone"}, {8, 8, "pair"}, {16, 8, "pair"}};
  std::vector<std::string> refused;
  for (size_t box = 0; box < 2; ++box) {
    const absl::StatusOr<BoxRequests> requests = RequestsOfBox(sequences, box, 2, 9, Balance::kTopic, 1);
    if (!requests.ok()) refused.emplace_back(requests.status().message());
  }
  EXPECT_THAT(refused, testing::ElementsAre(testing::HasSubstr("\"alone\"")));
}

}  // namespace
}  // namespace moed
