// Whose turn it is, and the rates that estimates go by.
#include "core/engine/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/engine/pace.h"

namespace moed {
namespace turns_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Request {
  size_t owner;
  Priority priority = Priority::kNormal;
};

// Serves requests one at a time, each for `cost` tokens, out of queues that never end. What each kind was served.
std::map<std::pair<size_t, Priority>, int> ServeBacklog(Turns& turns, const std::vector<Request>& kinds, int rounds) {
  std::map<std::pair<size_t, Priority>, int> served;
  std::vector<TurnEntry> entries;
  for (const Request& kind : kinds) entries.push_back({.owner = kind.owner, .priority = kind.priority});
  for (int round = 0; round < rounds; ++round) {
    const Request& kind = kinds[turns.Next(entries, 1).at(0)];
    turns.Charge(kind.owner, kind.priority, 1);
    ++served[{kind.owner, kind.priority}];
  }
  return served;
}

TEST(TurnsTest, TenantsGetWhatTheirWeightsSay) {
  Turns turns;
  const int weights[] = {1, 2, 5};
  for (size_t owner = 0; owner < 3; ++owner) turns.Enter(owner, Priority::kNormal, {.weight = weights[owner]});
  auto served = ServeBacklog(turns, {{0}, {1}, {2}}, 800);
  EXPECT_NEAR((served[{0, Priority::kNormal}]), 100, 1);
  EXPECT_NEAR((served[{1, Priority::kNormal}]), 200, 1);
  EXPECT_NEAR((served[{2, Priority::kNormal}]), 500, 1);
}

TEST(TurnsTest, EveryPriorityHasAShare) {
  Turns turns;
  for (const Priority priority : {Priority::kHigh, Priority::kNormal, Priority::kLow}) turns.Enter(0, priority, {});
  auto served = ServeBacklog(turns, {{0, Priority::kLow}, {0, Priority::kNormal}, {0, Priority::kHigh}}, 210);
  EXPECT_NEAR((served[{0, Priority::kHigh}]), 160, 1);
  EXPECT_NEAR((served[{0, Priority::kNormal}]), 40, 1);
  EXPECT_NEAR((served[{0, Priority::kLow}]), 10, 1);
}

TEST(TurnsTest, APriorityIsOfNoUseAgainstOthers) {
  Turns turns;
  turns.Enter(0, Priority::kHigh, {});
  turns.Enter(1, Priority::kLow, {});
  auto served = ServeBacklog(turns, {{0, Priority::kHigh}, {1, Priority::kLow}}, 100);
  EXPECT_EQ((served[{1, Priority::kLow}]), 50);
}

TEST(TurnsTest, NobodySavesUpWhileAway) {
  Turns turns;
  turns.Enter(0, Priority::kNormal, {});
  turns.Enter(1, Priority::kNormal, {});
  turns.Leave(1, Priority::kNormal);
  turns.Charge(0, Priority::kNormal, 1000);
  turns.Enter(1, Priority::kNormal, {});
  auto served = ServeBacklog(turns, {{0}, {1}}, 100);
  EXPECT_NEAR((served[{0, Priority::kNormal}]), 50, 1);
}

TEST(TurnsTest, PlacesOfOneTurnAreSharedToo) {
  Turns turns;
  for (int i = 0; i < 4; ++i) turns.Enter(0, Priority::kNormal, {});
  for (int i = 0; i < 2; ++i) turns.Enter(1, Priority::kNormal, {.max_running = 1});
  const std::vector<TurnEntry> entries{{0}, {0}, {0}, {0}, {1}, {1}};
  EXPECT_THAT(turns.Next(entries, 3), ElementsAre(0, 4, 1));
  EXPECT_THAT(turns.Next(entries, 9), ElementsAre(0, 4, 1, 2, 3)) << "the second of tenant 1 has no place";
  EXPECT_THAT(turns.Next(entries, 0), IsEmpty());
  const std::vector<TurnEntry> given{{.owner = 0, .gave_way = true}, {0}, {1}};
  EXPECT_THAT(turns.Next(given, 3), ElementsAre(1, 2)) << "the first has given its place";
}

TEST(TurnsTest, AHeavyTenantComesLast) {
  Turns turns;
  turns.Enter(0, Priority::kNormal, {.kv_percent = 10});
  turns.Enter(1, Priority::kNormal, {});
  turns.SetHeavy({true, false});
  turns.Charge(1, Priority::kNormal, 100);
  EXPECT_THAT(turns.Next(std::vector<TurnEntry>{{0}, {1}}, 2), ElementsAre(1, 0));
}

TEST(TurnsTest, WhoIsAboveItsShareOfPlacesGivesWay) {
  Turns turns;
  for (int i = 0; i < 3; ++i) turns.Enter(0, Priority::kNormal, {});
  turns.Enter(1, Priority::kNormal, {});
  const auto running = [](size_t owner, bool gives_way = true) {
    return TurnEntry{.owner = owner, .running = true, .gives_way = gives_way};
  };
  EXPECT_EQ(turns.GivesWay(std::vector<TurnEntry>{running(0), running(0), {0}, {1}}, 2), 1);
  EXPECT_EQ(turns.GivesWay(std::vector<TurnEntry>{running(0), running(0, false), {1}}, 2), 0) << "it would lose what it has";
  EXPECT_EQ(turns.GivesWay(std::vector<TurnEntry>{running(0, false), running(0, false), {1}}, 2), 1) << "all would: the youngest";
  EXPECT_EQ(turns.GivesWay(std::vector<TurnEntry>{running(0), {1}}, 1), std::nullopt) << "its only one";
  EXPECT_EQ(turns.GivesWay(std::vector<TurnEntry>{running(0), running(1), {1}}, 2), std::nullopt) << "everybody has one";
  EXPECT_EQ(turns.GivesWay(std::vector<TurnEntry>{running(0), running(0), {0}}, 2), std::nullopt) << "nobody else waits";
}

TEST(PaceTest, TellsNothingBeforeItHasMeasured) {
  Pace pace;
  EXPECT_EQ(pace.SecondsPerEnd(), 0);
  EXPECT_EQ(pace.PrefillSeconds(1, 64), std::nullopt);
  pace.OnStep(64, 64, 0);
  pace.OnEnd(0);
  EXPECT_EQ(pace.SecondsPerEnd(), 0);
}

TEST(PaceTest, GoesByTokensASecond) {
  Pace pace;
  for (int i = 0; i < 100; ++i) pace.OnStep(10, 0, 100'000'000);  // 100 tokens a second
  pace.OnEnd(50);
  EXPECT_NEAR(pace.SecondsPerEnd(), .5, 1e-9);
  for (int i = 0; i < 50; ++i) pace.OnEnd(200);
  EXPECT_NEAR(pace.SecondsPerEnd(), 2, .01);
}

TEST(PaceTest, APromptIsNeverPredictedSlowerThanThePaceThatWasSeen) {
  Pace pace;
  pace.OnStep(32, 32, 100'000'000);  // 320 a second
  pace.OnStep(32, 32, 800'000'000);  // 40 a second
  EXPECT_NEAR(*pace.PrefillSeconds(32, 64), .1, .001);
  EXPECT_EQ(pace.PrefillSeconds(33, 64), std::nullopt) << "larger steps may be faster";
  EXPECT_NEAR(*pace.PrefillSeconds(320, 32), 1, .01);
}

}  // namespace turns_test
}  // namespace moed
