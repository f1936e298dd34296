#include "server/wire/call_guard.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace moed {
namespace {

std::vector<std::string> Closed(std::vector<OpenCalls> connections, int most) {
  std::vector<std::string> peers;
  for (const OpenCalls& connection : Greediest(std::move(connections), most)) peers.push_back(connection.peer);
  return peers;
}

TEST(CallGuardTest, NobodyIsClosedWhereNoMoreAreOpenThanMayBe) {
  EXPECT_TRUE(Closed({}, 0).empty());
  EXPECT_TRUE(Closed({{"a", 60}, {"b", 40}}, 100).empty());
}

TEST(CallGuardTest, TheGreediestAreClosedUntilFewEnoughAreLeft) {
  EXPECT_EQ(Closed({{"modest", 3}, {"greedy", 500}, {"greedier", 900}, {"idle", 0}}, 100),
            (std::vector<std::string>{"greedier", "greedy"}));
  EXPECT_EQ(Closed({{"a", 60}, {"b", 41}}, 100), std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace moed
