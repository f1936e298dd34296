#include "core/engine/session_table.h"

#include <gtest/gtest.h>

namespace moed {
namespace session_table_test {

std::unique_ptr<Sequence> Conversation(const std::string& name, int pages = 0) {
  auto sequence = std::make_unique<Sequence>();
  sequence->session = name;
  sequence->tokens = {TokenId(1)};
  sequence->kv.pages.resize(pages);
  return sequence;
}

TEST(SessionTableTest, TheLeastRecentlyKeptOneGoes) {
  SessionTable table(2);
  EXPECT_EQ(table.Keep(Conversation("a")), nullptr);
  EXPECT_EQ(table.Keep(Conversation("b")), nullptr);
  EXPECT_EQ(table.Keep(table.Take("a")), nullptr);  // used again: b is the oldest now
  auto gone = table.Keep(Conversation("c"));
  ASSERT_NE(gone, nullptr);
  EXPECT_EQ(gone->session, "b");
  EXPECT_EQ(table.size(), 2);
  EXPECT_EQ(table.Find("b"), nullptr);
  EXPECT_NE(table.Find("a"), nullptr);
  EXPECT_EQ(table.Take("b"), nullptr);
  EXPECT_EQ(table.TakeOldest()->session, "a");
  EXPECT_EQ(table.TakeOldest()->session, "c");
  EXPECT_EQ(table.TakeOldest(), nullptr);
}

TEST(SessionTableTest, OfOwnersThatHaveMoreThanAnEqualShareTheOldestGoes) {
  SessionTable table(4);
  const auto keep = [&](const std::string& name, uint64_t owner) {
    auto sequence = Conversation(name);
    sequence->owner = owner;
    const auto gone = table.Keep(std::move(sequence));
    return gone ? gone->session : "";
  };
  EXPECT_EQ(keep("a1", 1), "");
  for (const char* name : {"b1", "b2", "b3"}) EXPECT_EQ(keep(name, 2), "");
  EXPECT_EQ(keep("b4", 2), "b1") << "a's only one is within its share";
  EXPECT_EQ(keep("a2", 1), "b2");
  EXPECT_EQ(keep("c1", 3), "a1") << "of three owners two have more than a third, and it is the oldest of theirs";
  EXPECT_EQ(keep("c2", 3), "b3");
  EXPECT_EQ(table.size(), 4);
}

TEST(SessionTableTest, WithoutCapacityNothingIsKept) {
  SessionTable table(0);
  EXPECT_EQ(table.Keep(Conversation("a"))->session, "a");
  EXPECT_EQ(table.size(), 0);
}

TEST(SessionTableTest, TheyAreVisitedOldestFirstUntilTheVisitorHasEnough) {
  SessionTable table(4);
  for (const char* name : {"a", "b", "c"}) table.Keep(Conversation(name));
  table.Keep(table.Take("a"));
  std::string visited;
  table.Visit([&](Sequence& sequence) {
    visited += sequence.session;
    return sequence.session != "c";
  });
  EXPECT_EQ(visited, "bc");
}

}  // namespace session_table_test
}  // namespace moed
