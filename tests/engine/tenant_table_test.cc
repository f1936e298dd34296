#include "core/engine/tenant_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/retry_after.h"

namespace moed {
namespace tenant_table_test {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

TEST(TenantTableTest, NobodyInParticularHasNoLimits) {
  TenantTable table(1, 4);
  EXPECT_EQ(table.Know("", {.max_running = 1, .max_waiting = 0, .tokens_per_minute = 1}), 0u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(table.Check(0, 0).ok());
    table.Admit(0, Priority::kNormal, 100);
  }
  EXPECT_TRUE(table.List().empty());
}

TEST(TenantTableTest, WaitingRequestsAreThoseThatHaveNoPlace) {
  TenantTable table(2, 100);
  const size_t owner = table.Know("alice", {.max_waiting = 1});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(table.Check(owner, 0).ok()) << i;
    table.Admit(owner, Priority::kNormal, 1);
  }
  EXPECT_THAT(std::string(table.Check(owner, 0).message()), HasSubstr("at most 1 may (max-waiting)"));
  table.SetRunning(std::vector<CountsByPriority>{{}, {0, 2, 0}});
  EXPECT_FALSE(table.Check(owner, 0).ok());
  const size_t other = table.Know("bob", {});
  EXPECT_TRUE(table.Check(other, 0).ok());
  table.Release(owner, Priority::kNormal, 1, true);
  table.SetRunning(std::vector<CountsByPriority>{{}, {0, 1, 0}});
  EXPECT_TRUE(table.Check(owner, 0).ok());
  EXPECT_EQ(table.List()[0].refused, 2u);
  EXPECT_EQ(table.List()[1].refused, 0u);
}

TEST(TenantTableTest, WithoutWaitingWhatCanRunRuns) {
  TenantTable table(4, 100);
  const size_t owner = table.Know("alice", {.max_running = 2, .max_waiting = 0});
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(table.Check(owner, 0).ok()) << i;
    table.Admit(owner, Priority::kNormal, 1);
  }
  EXPECT_FALSE(table.Check(owner, 0).ok());
}

TEST(TenantTableTest, OneTenantDoesNotFillTheQueue) {
  TenantTable table(2, 20);
  const size_t greedy = table.Know("greedy", {});
  int admitted = 0;
  for (; table.Check(greedy, 0).ok(); ++admitted) table.Admit(greedy, Priority::kNormal, 1);
  EXPECT_EQ(admitted, 16);
  const size_t other = table.Know("other", {});
  EXPECT_TRUE(table.Check(other, 0).ok());
}

TEST(TenantTableTest, TokensAMinuteAreABucket) {
  TenantTable table(2, 20);
  const size_t owner = table.Know("alice", {.tokens_per_minute = 600});  // 10 a second
  const auto ask = [&](int prompt, int64_t now) {
    const absl::Status status = table.Check(owner, now);
    if (status.ok()) table.Admit(owner, Priority::kNormal, prompt);
    return status;
  };
  EXPECT_TRUE(ask(500, 0).ok());
  EXPECT_TRUE(ask(99, 0).ok());
  EXPECT_TRUE(ask(400, 0).ok()) << "one token is left: what goes beyond is had on credit";
  const absl::Status refused = ask(1, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_TRUE(IsTenantLimit(refused));
  EXPECT_NEAR(*RetryAfterOf(refused), 40, .01);
  EXPECT_FALSE(ask(1, 39 * kSecond).ok());
  EXPECT_TRUE(ask(1, 41 * kSecond).ok());
  table.CountGenerated(owner, 100);
  EXPECT_FALSE(ask(1, 50 * kSecond).ok()) << "answers count";
  EXPECT_FALSE(ask(1, 45 * kSecond).ok()) << "time that goes back gives nothing";
  EXPECT_TRUE(ask(600, 3600 * kSecond).ok());
  EXPECT_FALSE(ask(1, 3600 * kSecond).ok()) << "an hour of silence saves up a minute's tokens";
  table.Release(owner, Priority::kNormal, 600, false);
  EXPECT_TRUE(ask(1, 3600 * kSecond).ok()) << "a request that was not begun gives them back";
  EXPECT_EQ(table.List()[0].prompt_tokens, 0u);
  EXPECT_TRUE(ask(700, 3600 * kSecond).ok());
  table.Release(owner, Priority::kNormal, 500, true);
  EXPECT_FALSE(ask(1, 3600 * kSecond).ok()) << "what has run is not given back";
  EXPECT_EQ(table.List()[0].prompt_tokens, 500u);
  EXPECT_EQ(table.List()[0].generated_tokens, 100u);
}

TEST(TenantTableTest, NewLimitsHoldAtOnce) {
  TenantTable table(2, 20);
  const size_t owner = table.Know("alice", {});
  table.Admit(owner, Priority::kNormal, 1000);
  EXPECT_EQ(table.Know("alice", {.tokens_per_minute = 60}), owner);
  EXPECT_TRUE(table.Check(owner, 0).ok());
  table.Admit(owner, Priority::kNormal, 60);
  EXPECT_FALSE(table.Check(owner, 0).ok());
  table.Know("alice", {.tokens_per_minute = 6000});
  EXPECT_FALSE(table.Check(owner, 0).ok()) << "what it had stays had";
  EXPECT_TRUE(table.Check(owner, kSecond).ok());
}

TEST(TenantTableTest, PositionsGoByWeight) {
  TenantTable table(1, 100);
  const size_t many = table.Know("many", {.weight = 2}), few = table.Know("few", {});
  for (int i = 0; i < 10; ++i) table.Admit(many, Priority::kNormal, 1);
  EXPECT_EQ(table.Position(few, Priority::kNormal), 0) << "it has nothing: its turn is next";
  table.Admit(few, Priority::kNormal, 1);
  EXPECT_EQ(table.Position(few, Priority::kNormal), 1 + 2);
  EXPECT_EQ(table.Position(many, Priority::kNormal), 10 + 1);
  EXPECT_EQ(table.Position(0, Priority::kNormal), 0);
  EXPECT_EQ(table.Find("nobody"), 0u);
}

TEST(TenantTableTest, PositionsGoByPriority) {
  TenantTable table(1, 200);
  for (int i = 0; i < 51; ++i) table.Admit(0, Priority::kLow, 1);
  table.SetRunning(std::vector<CountsByPriority>{{0, 0, 1}});
  EXPECT_EQ(table.Position(0, Priority::kLow), 50);
  EXPECT_EQ(table.Position(0, Priority::kHigh), 0) << "none of its priority waits: its turn is next";
  for (int i = 0; i < 16; ++i) table.Admit(0, Priority::kHigh, 1);
  EXPECT_EQ(table.Position(0, Priority::kHigh), 16 + 1);
  EXPECT_EQ(table.Position(0, Priority::kLow), 50 + 16);
  const size_t other = table.Know("other", {});
  for (int i = 0; i < 30; ++i) table.Admit(other, Priority::kNormal, 1);
  EXPECT_EQ(table.Position(0, Priority::kHigh), 16 + 1 + 17) << "the other tenant has as many turns";
}

}  // namespace tenant_table_test
}  // namespace moed
