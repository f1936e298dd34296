// What contexts get of a budget that holds all experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/serving/serving_plan.h"
#include "tests/model/good_spec.h"
#include "tests/store/made_up_store.h"

namespace moed {
namespace context_plan_test {

constexpr uint64_t kMiB = 1 << 20;
constexpr int kUsual = 16384;

// 51 MiB of experts, 13 MiB of embedding and as much of a head; a whole context of keys and values is 32 MiB.
ModelSpec WithLongContext() {
  ModelSpec spec = LargerSpec();
  spec.vocabulary = 50'000;
  spec.max_positions = kUsual;
  return spec;
}

class ContextPlanTest : public testing::Test {
 protected:
  absl::StatusOr<ServingPlan> Plan(uint64_t budget, bool lends = true) const {
    return PlanServing({budget, options_, store_, spec_, 100'000, 0, {.cache = {.lends = lends}}});
  }
  ServingBudgets Budgets() const {
    return FindServingBudgets({0, options_, store_, spec_, 100'000, 0, {.cache = {.lends = true}}}).value();
  }
  uint64_t AllExperts() const { return AllRecordBytes(store_, kReferencePrecision); }

  const ModelSpec spec_ = WithLongContext();
  const StoreDescription store_ = *DescribeMadeUpStore(spec_, FormatId::kQ8);
  ServingOptions options_;
};

// No context that is a page longer would leave all experts their room.
TEST_F(ContextPlanTest, IsAsLongAsTheExpertsLeaveRoomFor) {
  options_.embedding = EmbeddingPlace::kMemory;
  int longest = 0;
  for (uint64_t budget = 110 * kMiB; budget < 260 * kMiB; budget += 10 * kMiB) {
    options_.max_context.reset();
    const auto plan = Plan(budget, /*lends=*/false);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->memory.cache, AllExperts()) << budget;
    longest = std::max(longest, plan->memory.max_context);
    if (plan->memory.max_context == kUsual) continue;
    options_.max_context = plan->memory.max_context + kKvPageTokens;
    const auto longer = Plan(budget, /*lends=*/false);
    ASSERT_TRUE(longer.ok()) << longer.status();
    EXPECT_LT(longer->memory.cache, AllExperts()) << budget << ": " << longer->memory.Table();
  }
  EXPECT_EQ(longest, kUsual);
}

TEST_F(ContextPlanTest, ALargerBudgetGivesNoLess) {
  MemoryPlan before;
  for (uint64_t budget = Budgets().smallest.budget; budget < 400 * kMiB; budget += kMiB) {
    const auto plan = Plan(budget);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_GE(plan->memory.cache, before.cache) << budget;
    EXPECT_GE(plan->memory.max_context, before.max_context) << budget;
    before = plan->memory;
  }
  EXPECT_EQ(before.cache, AllExperts());
  EXPECT_EQ(before.max_context, kUsual);
}

// An embedding that is not the head as well takes no memory that the context lacks.
TEST_F(ContextPlanTest, GoesBeforeTheEmbedding) {
  options_.embedding = EmbeddingPlace::kMemory;
  const uint64_t budget = Budgets().comfortable.budget;
  const auto in_memory = Plan(budget);
  options_.embedding = EmbeddingPlace::kAuto;
  const auto chosen = Plan(budget), large = Plan(4 * budget);
  ASSERT_TRUE(in_memory.ok() && chosen.ok() && large.ok()) << in_memory.status() << chosen.status() << large.status();
  EXPECT_EQ(in_memory->memory.cache, AllExperts());
  EXPECT_TRUE(chosen->model.stored_embedding);
  EXPECT_EQ(chosen->memory.cache, AllExperts());
  EXPECT_GT(chosen->memory.max_context, in_memory->memory.max_context);
  EXPECT_FALSE(large->model.stored_embedding);
  EXPECT_EQ(large->memory.max_context, kUsual);
  EXPECT_GE(large->memory.kv_pages, 2 * kUsual / kKvPageTokens);
}

// Beyond one whole context there are more, as far as requests that may run can have them.
TEST_F(ContextPlanTest, RoomForMoreIsForMore) {
  options_.max_running = 3;
  const auto plan = Plan(1024 * kMiB);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->memory.max_context, kUsual);
  EXPECT_EQ(plan->memory.kv_pages, 3 * kUsual / kKvPageTokens);
}

TEST_F(ContextPlanTest, WhatIsToldStays) {
  options_.max_context = 1000;
  const auto context = Plan(400 * kMiB);
  options_.max_context.reset();
  options_.kv_budget = 3 * kMiB;
  const auto kv = Plan(400 * kMiB);
  ASSERT_TRUE(context.ok() && kv.ok()) << context.status() << kv.status();
  EXPECT_EQ(context->memory.max_context, 1000);
  EXPECT_LE(kv->memory.kv, 3 * kMiB);
  EXPECT_EQ(kv->memory.max_context, kv->memory.kv_pages * kKvPageTokens);
}

}  // namespace context_plan_test
}  // namespace moed
