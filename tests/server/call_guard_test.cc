#include "server/wire/call_guard.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace moed {
namespace {

std::vector<std::string> Closed(std::vector<ConnectionCalls> connections, int most, int most_of_one) {
  std::vector<std::string> peers;
  for (const ConnectionCalls& connection : Greediest(std::move(connections), most, most_of_one)) peers.push_back(connection.peer);
  return peers;
}

TEST(CallGuardTest, NobodyIsClosedWhereNoMoreAreOpenThanMayBe) {
  EXPECT_TRUE(Closed({}, 0, 0).empty());
  EXPECT_TRUE(Closed({{.peer = "a", .open = 60}, {.peer = "b", .open = 40}}, 100, 60).empty());
}

TEST(CallGuardTest, TheGreediestAreClosedUntilFewEnoughAreLeft) {
  EXPECT_EQ(
      Closed(
          {{.peer = "modest", .open = 3}, {.peer = "greedy", .open = 500}, {.peer = "greedier", .open = 900}, {.peer = "idle"}},
          100, 1000),
      (std::vector<std::string>{"greedier", "greedy"}));
  EXPECT_EQ(Closed({{.peer = "a", .open = 60}, {.peer = "b", .open = 41}}, 100, 100), std::vector<std::string>{"a"});
}

TEST(CallGuardTest, WhoHasMoreThanItsShareOpenOrFailedIsClosedHoweverFewAreOpen) {
  EXPECT_EQ(Closed({{.peer = "polite", .open = 4, .failed = 6}, {.peer = "refused", .failed = 11}, {.peer = "many", .open = 12}},
                   100, 10),
            (std::vector<std::string>{"many", "refused"}));
}

}  // namespace
}  // namespace moed
