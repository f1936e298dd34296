// Where the memory plan has the embedding: what each place gives the experts, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/serving/serving_plan.h"
#include "tests/model/good_spec.h"
#include "tests/store/made_up_store.h"

namespace moed {
namespace embedding_place_test {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

// 51 MiB of experts, 25.9 MiB of embedding and as much of a head, unless that is the same.
ModelSpec WithLargeVocabulary(bool tied) {
  ModelSpec spec = LargerSpec();
  spec.vocabulary = 100'000;
  spec.tied_embeddings = tied;
  return spec;
}

class EmbeddingPlaceTest : public testing::Test {
 protected:
  explicit EmbeddingPlaceTest(bool tied = false)
      : spec_(WithLargeVocabulary(tied)), store_(*DescribeMadeUpStore(spec_, FormatId::kQ8)) {}

  absl::StatusOr<ServingPlan> Plan(uint64_t budget, EmbeddingPlace place, PresetNeeds preset = {.cache = {.lends = true}},
                                   std::optional<uint64_t> device_budget = std::nullopt) {
    options_.embedding = place;
    options_.max_running = 2;
    ServingInputs in{budget, options_, store_, spec_, 100'000, 0, preset};
    in.device_budget = device_budget;
    return PlanServing(in);
  }
  absl::StatusOr<ServingBudgets> Budgets(EmbeddingPlace place) {
    options_.embedding = place;
    options_.max_running = 2;
    return FindServingBudgets({0, options_, store_, spec_, 100'000, 0, {.cache = {.lends = true}}});
  }
  uint64_t LeftOut() const { return Model::BytesOfStoredEmbedding(store_, spec_).left_out; }

  const ModelSpec spec_;
  const StoreDescription store_;
  ServingOptions options_;
};

uint64_t Part(const std::vector<MemoryPart>& parts, std::string_view name) {
  for (const MemoryPart& part : parts) {
    if (part.name == name) return part.bytes;
  }
  return 0;
}

TEST_F(EmbeddingPlaceTest, TheStoreGivesItsRoomToExperts) {
  ASSERT_GT(LeftOut(), 25 * kMiB);
  const auto memory = Plan(90 * kMiB, EmbeddingPlace::kMemory), stored = Plan(90 * kMiB, EmbeddingPlace::kStore);
  ASSERT_TRUE(memory.ok() && stored.ok()) << memory.status() << stored.status();
  EXPECT_FALSE(memory->model.stored_embedding);
  EXPECT_TRUE(stored->model.stored_embedding);
  EXPECT_EQ(Part(memory->memory.parts, "trunk"), store_.trunk_bytes);
  EXPECT_EQ(Part(memory->memory.parts, "embedding"), 0u);
  EXPECT_EQ(Part(stored->memory.parts, "trunk"), store_.trunk_bytes - LeftOut());
  const Model::StoredEmbeddingBytes bytes = Model::BytesOfStoredEmbedding(store_, spec_);
  EXPECT_EQ(Part(stored->memory.parts, "embedding"), bytes.working + bytes.host);
  EXPECT_GT(stored->memory.cache, memory->memory.cache + LeftOut() * 9 / 10);
  EXPECT_THAT(stored->memory.Table(), HasSubstr("of it stay in the store"));
}

// In memory as soon as all experts fit beside it, and not sooner.
TEST_F(EmbeddingPlaceTest, AutoTakesMemoryThatExpertsDoNotNeed) {
  const auto in_memory = Budgets(EmbeddingPlace::kMemory);
  ASSERT_TRUE(in_memory.ok()) << in_memory.status();
  const uint64_t all = AllRecordBytes(store_, kReferencePrecision);
  const auto enough = Plan(in_memory->comfortable.budget, EmbeddingPlace::kAuto);
  ASSERT_TRUE(enough.ok()) << enough.status();
  EXPECT_FALSE(enough->model.stored_embedding);
  EXPECT_EQ(enough->memory.cache, all);
  const auto less = Plan(in_memory->comfortable.budget - 1, EmbeddingPlace::kAuto);
  ASSERT_TRUE(less.ok()) << less.status();
  EXPECT_TRUE(less->model.stored_embedding);
  EXPECT_EQ(less->memory.cache, all);
}

// A preset that can use a few experts only has no need of more room.
TEST_F(EmbeddingPlaceTest, AutoTakesMemoryThatThePresetDoesNotNeed) {
  const uint64_t few = 8 * LargestRecordBytes(store_);
  const auto plan = Plan(90 * kMiB, EmbeddingPlace::kAuto, {.cache = {.most = few}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->model.stored_embedding);
  EXPECT_EQ(plan->memory.cache, few);
}

TEST_F(EmbeddingPlaceTest, AutoServesInSmallerBudgets) {
  const auto memory = Budgets(EmbeddingPlace::kMemory), chosen = Budgets(EmbeddingPlace::kAuto),
             stored = Budgets(EmbeddingPlace::kStore);
  ASSERT_TRUE(memory.ok() && chosen.ok() && stored.ok());
  EXPECT_EQ(chosen->smallest.budget, stored->smallest.budget);
  EXPECT_LT(chosen->smallest.budget + LeftOut() * 9 / 10, memory->smallest.budget);
  EXPECT_EQ(chosen->comfortable.budget, stored->comfortable.budget);
  EXPECT_TRUE(Plan(chosen->smallest.budget, EmbeddingPlace::kAuto).ok());
  EXPECT_EQ(Plan(chosen->smallest.budget - 1, EmbeddingPlace::kAuto).status().code(), absl::StatusCode::kResourceExhausted);
}

// Of a device with memory of its own its room is the experts' there.
TEST_F(EmbeddingPlaceTest, ADeviceGivesItsRoomToExperts) {
  const PresetNeeds preset = {.cache = {.lends = true}};
  const auto memory = Plan(64 * kMiB, EmbeddingPlace::kMemory, preset, 80 * kMiB),
             chosen = Plan(64 * kMiB, EmbeddingPlace::kAuto, preset, 80 * kMiB),
             enough = Plan(64 * kMiB, EmbeddingPlace::kAuto, preset, 160 * kMiB);
  ASSERT_TRUE(memory.ok() && chosen.ok() && enough.ok()) << memory.status() << chosen.status() << enough.status();
  EXPECT_TRUE(chosen->model.stored_embedding);
  EXPECT_GT(chosen->memory.device_cache, memory->memory.device_cache + LeftOut() * 9 / 10);
  const Model::StoredEmbeddingBytes bytes = Model::BytesOfStoredEmbedding(store_, spec_);
  EXPECT_EQ(Part(chosen->memory.parts, "embedding"), bytes.host);
  EXPECT_EQ(Part(chosen->memory.device_parts, "embedding"), bytes.working);
  EXPECT_EQ(Part(chosen->memory.device_parts, "trunk"), store_.trunk_bytes - LeftOut());
  EXPECT_FALSE(enough->model.stored_embedding);
  EXPECT_GE(enough->memory.device_cache, AllRecordBytes(store_, kReferencePrecision));
}

class TiedEmbeddingTest : public EmbeddingPlaceTest {
 protected:
  TiedEmbeddingTest() : EmbeddingPlaceTest(/*tied=*/true) {}
};

TEST_F(TiedEmbeddingTest, IsInMemory) {
  const auto plan = Plan(48 * kMiB, EmbeddingPlace::kAuto);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->model.stored_embedding);
  const absl::Status refused =
      InvalidArgument("the embedding cannot stay in the store: it is the model's head as well, which every token reads whole");
  EXPECT_EQ(Plan(48 * kMiB, EmbeddingPlace::kStore).status(), refused);
  EXPECT_EQ(Budgets(EmbeddingPlace::kStore).status(), refused);
}

}  // namespace embedding_place_test
}  // namespace moed
