#include "core/expert/learning/activation_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/expert/provider_rig.h"

namespace moed {
namespace activation_paths_test {

using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;

constexpr int kLayerCount = 4;
constexpr int kFour = 4;  // experts
constexpr size_t kRoom = 1 << 16;

std::pair<PathSource, std::vector<float>> Estimate(const ActivationPaths& paths, int position, const PathKey& key) {
  std::vector<float> p(static_cast<size_t>(paths.experts()));
  const PathSource source = paths.Estimate(position, key, p);
  return {source, p};
}
void Add(ActivationPaths& paths, int position, const PathKey& key, std::vector<int32_t> chosen) {
  paths.Add(position, key, chosen);
}

// What every test below asks: layer 2 after three tokens.
ActivationPaths Example() {
  ActivationPaths paths(kLayerCount, kFour, 2, kRoom);
  Add(paths, 2, {{0, 1}, {0, 1}}, {0, 1});
  Add(paths, 2, {{0, 1}, {0, 1}}, {0, 2});
  Add(paths, 2, {{0, 2}, {1, 3}}, {2, 3});
  return paths;
}

TEST(ActivationPaths, AWholeKeyAnswersWithItsOwnCounts) {
  const auto [source, p] = Estimate(Example(), 2, {{0, 1}, {0, 1}});
  EXPECT_EQ(source, PathSource::kPath);
  EXPECT_THAT(p, ElementsAre(FloatEq(1), FloatEq(.5f), FloatEq(.5f), FloatEq(0)));
}

TEST(ActivationPaths, ThenThePairsThatWereSeen) {
  // Pairs (0,1), (0,2), (1,1), (1,2) of which (0,1) came three times, followed by {0,1}, {0,2}, {2,3}; (1,1) twice, {0,1}, {0,2}.
  const auto [source, p] = Estimate(Example(), 2, {{0, 1}, {1, 2}});
  EXPECT_EQ(source, PathSource::kPairs);
  EXPECT_THAT(p, ElementsAre(FloatEq(4 / 5.f), FloatEq(2 / 5.f), FloatEq(3 / 5.f), FloatEq(1 / 5.f)));
}

TEST(ActivationPaths, ThenTheExpertsOfTheLayerBefore) {
  // (3, ...) was never seen before; 0 came twice, 3 once.
  for (const PathKey& key : {PathKey{{3}, {0, 3}}, PathKey{{}, {0, 3}}}) {
    const auto [source, p] = Estimate(Example(), 2, key);
    EXPECT_EQ(source, PathSource::kExperts);
    EXPECT_THAT(p, ElementsAre(FloatEq(2 / 3.f), FloatEq(1 / 3.f), FloatEq(2 / 3.f), FloatEq(1 / 3.f)));
  }
}

TEST(ActivationPaths, ThenFrequency) {
  const auto [source, p] = Estimate(Example(), 2, {{3}, {2}});
  EXPECT_EQ(source, PathSource::kFrequency);
  EXPECT_THAT(p, ElementsAre(FloatEq(2 / 3.f), FloatEq(1 / 3.f), FloatEq(2 / 3.f), FloatEq(1 / 3.f)));
  EXPECT_THAT(Estimate(Example(), 1, {{}, {0}}).second, ElementsAre(0, 0, 0, 0));  // another layer
}

TEST(ActivationPaths, ReachOfOneKeepsSingleExpertsAlone) {
  ActivationPaths paths(kLayerCount, kFour, 1, kRoom);
  Add(paths, 2, {{0, 1}, {0, 1}}, {3});
  EXPECT_EQ(Estimate(paths, 2, {{0, 1}, {0, 1}}).first, PathSource::kExperts);
  EXPECT_EQ(Estimate(paths, 2, {{0, 1}, {2}}).first, PathSource::kFrequency);
}

TEST(ActivationPaths, RoomIsBoundedAndWhatIsCountedOftenStays) {
  ActivationPaths paths(2, 256, 1, 64 * PathTable::RowBytes(256));
  const size_t bytes = paths.memory_bytes();
  for (int i = 0; i < 50; ++i) Add(paths, 1, {{}, {7}}, {9});
  for (int32_t e = 0; e < 256; ++e) {
    if (e != 7) Add(paths, 1, {{}, {e}}, {1});
  }
  EXPECT_EQ(paths.memory_bytes(), bytes);
  const auto [source, p] = Estimate(paths, 1, {{}, {7}});
  EXPECT_EQ(source, PathSource::kExperts);
  EXPECT_FLOAT_EQ(p[9], 1);
}

TEST(ActivationPaths, ManyOccurrencesKeepTheirShares) {
  ActivationPaths paths(2, kFour, 1, kRoom);
  for (int i = 0; i < 200'000; ++i) Add(paths, 1, {{}, {0}}, {i % 4 == 0 ? 1 : 2});
  const auto [source, p] = Estimate(paths, 1, {{}, {0}});
  EXPECT_EQ(source, PathSource::kExperts);
  EXPECT_NEAR(p[1], .25f, .001f);
  EXPECT_NEAR(p[2], .75f, .001f);
}

class PathFile : public testing::Test {
 protected:
  static constexpr uint64_t kHash = 0x1234;
  std::string Written() {
    EXPECT_TRUE(Example().Write(path_, kHash).ok());
    return FileContents(path_);
  }
  absl::Status ReadBack(const std::string& contents, uint64_t hash = kHash, int layers = kLayerCount, int experts = kFour) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << contents;
    return ActivationPaths::Read(path_, hash, layers, experts).status();
  }
  MemoryFolder folder_;
  const std::string path_ = folder_ / "model.paths";
};

TEST_F(PathFile, HoldsEverything) {
  Written();
  const auto paths = ActivationPaths::Read(path_, kHash, kLayerCount, kFour);
  ASSERT_TRUE(paths.ok()) << paths.status();
  for (const PathKey& key : {PathKey{{0, 1}, {0, 1}}, PathKey{{0, 1}, {1, 2}}, PathKey{{3}, {0, 3}}, PathKey{{3}, {2}}}) {
    EXPECT_EQ(Estimate(**paths, 2, key), Estimate(Example(), 2, key));
  }
  EXPECT_EQ((*paths)->memory_bytes(), Example().memory_bytes());
}

TEST_F(PathFile, OfAnotherModelIsRefused) {
  const std::string contents = Written();
  const absl::Status other = ReadBack(contents, kHash + 1);
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(MessageText(other), testing::AllOf(HasSubstr("another model"), HasSubstr("1234"), HasSubstr("1235")));
  EXPECT_EQ(ReadBack(contents, kHash, kLayerCount + 1).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadBack(contents, kHash, kLayerCount, kFour + 1).code(), absl::StatusCode::kDataLoss);
  std::string version = contents;
  version[8] = 77;
  EXPECT_EQ(ReadBack(version).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(PathFile, TruncatedLongerOrDamagedIsRefused) {
  const std::string contents = Written();
  for (const size_t bytes : {size_t{0}, size_t{7}, size_t{40}, contents.size() / 2, contents.size() - 1}) {
    EXPECT_EQ(ReadBack(contents.substr(0, bytes)).code(), absl::StatusCode::kDataLoss) << bytes;
  }
  EXPECT_EQ(ReadBack(contents + "x").code(), absl::StatusCode::kDataLoss);
  for (size_t at = 0; at < contents.size(); at += 997) {
    std::string damaged = contents;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    EXPECT_FALSE(ReadBack(damaged).ok()) << at;
  }
  EXPECT_TRUE(ReadBack(contents).ok());
  EXPECT_EQ(ActivationPaths::Read("/nowhere/x.paths", kHash, 1, 1).status().code(), absl::StatusCode::kNotFound);
}

// A right checksum does not make sense of counts that contradict each other.
TEST_F(PathFile, ImpossibleCountsAreRefused) {
  const std::string contents = Written();
  const size_t visits = 48 + 2 * sizeof(uint32_t);  // of layer 2
  std::string never = contents;
  never[visits] = 1;
  const uint64_t checksum = Checksum(std::string_view(never).substr(0, never.size() - sizeof(uint64_t)));
  never.replace(never.size() - sizeof(checksum), sizeof(checksum), reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  EXPECT_THAT(MessageText(ReadBack(never)), HasSubstr("MoE layer 2 was seen 1 times and one of its experts 2 times"));
}

TEST(TokenPaths, FollowsEveryTokenThroughItsLayers) {
  TokenPaths tokens;
  std::vector<ExpertSet> seen;
  const auto advance = [&](int position, Routing& routing) {
    seen.clear();
    tokens.Advance(position, routing.Get(), [&](const TokenRouting&, const PathKey& key, const ExpertSet&) {
      seen.push_back(key.two_before);
      seen.push_back(key.before);
    });
  };
  const SequenceId other(9);
  Routing first(LayerId(0), {3, 1});
  first.Add(other, {5, 4});
  advance(0, first);
  EXPECT_THAT(seen, ElementsAre(ExpertSet{}, ExpertSet{}, ExpertSet{}, ExpertSet{}));
  Routing second(LayerId(2), {2, 0});
  second.Add(other, {6, 7});
  advance(1, second);
  EXPECT_THAT(seen, ElementsAre(ExpertSet{}, ExpertSet({1, 3}), ExpertSet{}, ExpertSet({4, 5})));
  Routing third(LayerId(3));  // the first sequence has left the step
  third.Add(other, {1, 2});
  advance(2, third);
  EXPECT_THAT(seen, ElementsAre(ExpertSet({4, 5}), ExpertSet({6, 7})));
  ASSERT_EQ(tokens.rows().size(), 1u);
  EXPECT_EQ(tokens.rows()[0].next.before, ExpertSet({1, 2}));
  advance(0, first);
  EXPECT_THAT(seen, ElementsAre(ExpertSet{}, ExpertSet{}, ExpertSet{}, ExpertSet{}));
}

// Counts that fall from row to row: the search for the least one stays inside the set.
TEST(PathTable, TheLeastCountedOfItsSetMakesRoom) {
  PathTable table(4, 0);  // one set
  ASSERT_EQ(table.rows(), PathTable::kWays);
  const int32_t chosen[] = {2};
  for (uint64_t key = 1; key <= PathTable::kWays; ++key) {
    for (uint64_t times = key; times <= PathTable::kWays + 1; ++times) table.Count(key, chosen);
  }
  table.Count(100, chosen);
  EXPECT_NE(table.Find(100), PathTable::kNoRow);
  EXPECT_EQ(table.Find(PathTable::kWays), PathTable::kNoRow);
  for (uint64_t key = 1; key < PathTable::kWays; ++key) EXPECT_NE(table.Find(key), PathTable::kNoRow) << key;
}

}  // namespace activation_paths_test
}  // namespace moed
