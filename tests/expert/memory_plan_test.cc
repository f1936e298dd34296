#include "core/expert/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "core/base/byte_size.h"
#include "core/base/status.h"

namespace moed {
namespace memory_plan_test {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

std::string TextOf(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

MemoryNeeds Needs() {
  return {.trunk = 2 * kMiB,
          .tokenizer = 300'000,
          .scratch = 500'000,
          .tables = 70'000,
          .queues = 40'000,
          .kv_page = 16 * 1024,
          .page_tokens = 16,
          .record = 28'672,
          .all_experts = 256 * 28'672,
          .model_context = 512};
}
constexpr uint64_t kFixed = 2 * kMiB + 300'000 + 500'000 + 70'000 + 40'000;

uint64_t SumOf(const MemoryPlan& plan) {
  uint64_t sum = 0;
  for (const MemoryPart& part : plan.parts) sum += part.bytes;
  return sum;
}

struct PlanCase {
  std::string name;
  MemoryRequest request;
  int kv_pages;
  int max_context;
  uint64_t cache;
};

TEST(MemoryPlan, DividesTheBudget) {
  const MemoryNeeds needs = Needs();
  const PlanCase cases[] = {
      // A sixteenth of what is left is 20 pages of 8 MiB; 12 MiB leave 136 beside all experts. A sequence of the whole context
      // needs 32.
      {"defaults, small budget", {.budget = 8 * kMiB}, 20, 320, 8 * kMiB - kFixed - 20 * 16384},
      {"defaults, one sequence", {.budget = 12 * kMiB}, 32, 512, needs.all_experts},
      {"defaults, eight sessions", {.budget = 12 * kMiB, .max_running = 8}, 136, 512, needs.all_experts},
      {"what experts have no use for", {.budget = kFixed + needs.all_experts + 31 * 16384}, 31, 496, needs.all_experts},
      {"a page less of it", {.budget = kFixed + needs.all_experts + 31 * 16384 - 1}, 30, 480, needs.all_experts},
      {"for several", {.budget = kFixed + needs.all_experts + 50 * 16384, .max_running = 2}, 50, 512, needs.all_experts},
      {"of a given context",
       {.budget = kFixed + needs.all_experts + 50 * 16384, .max_context = 400, .max_running = 8},
       50,
       400,
       needs.all_experts},
      {"at least 256 positions", {.budget = 4 * kMiB, .max_running = 8}, 16, 256, 4 * kMiB - kFixed - 16 * 16384},
      {"more than everything", {.budget = 64 * kMiB, .max_running = 2}, 64, 512, needs.all_experts},
      {"given KV", {.budget = 8 * kMiB, .kv_budget = 10 * 16384 + 5}, 10, 160, 8 * kMiB - kFixed - 10 * 16384},
      {"given context", {.budget = 4 * kMiB, .max_context = 400}, 25, 400, 4 * kMiB - kFixed - 25 * 16384},
      {"small context", {.budget = 8 * kMiB, .max_context = 20, .max_running = 3}, 6, 20, 8 * kMiB - kFixed - 6 * 16384},
      {"given both", {.budget = 8 * kMiB, .kv_budget = kMiB, .max_context = 100}, 64, 100, 8 * kMiB - kFixed - kMiB},
  };
  for (const PlanCase& test : cases) {
    SCOPED_TRACE(test.name);
    const auto plan = PlanMemory(needs, test.request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->kv_pages, test.kv_pages);
    EXPECT_EQ(plan->kv, test.kv_pages * needs.kv_page);
    EXPECT_EQ(plan->max_context, test.max_context);
    EXPECT_EQ(plan->cache, test.cache);
    EXPECT_LE(SumOf(*plan), test.request.budget);
    EXPECT_EQ(SumOf(*plan), kFixed + plan->kv + plan->cache);
    for (const char* name : {"trunk", "kv", "cache", "scratch", "tokenizer", "tables", "queues"}) {
      EXPECT_THAT(plan->Table(), HasSubstr(name));
    }
  }
}

// 32 pages are a whole context; a slot is as much as 5 pages.
MemoryNeeds NeedsWithSlots() {
  MemoryNeeds needs = Needs();
  needs.kv_slot = 5 * 16384;
  return needs;
}

struct SlotsCase {
  std::string name;
  MemoryRequest request;
  int kv_pages;
  int kv_slots;
  int max_context;
};

TEST(MemoryPlan, SlotsGetUpToHalfOfTheShare) {
  const MemoryNeeds needs = NeedsWithSlots();
  const SlotsCase cases[] = {
      // A sixteenth of what is left is 20 pages of 8 MiB, 28 of 10 MiB; 12 MiB leave 136 beside all experts.
      {"one at least", {.budget = 4 * kMiB, .max_running = 8}, 16, 1, 256},
      {"half of the share beside the least context", {.budget = 8 * kMiB, .max_running = 8}, 16, 2, 256},
      {"half", {.budget = 10 * kMiB, .max_running = 8}, 18, 2, 288},
      {"no more than run", {.budget = 10 * kMiB, .max_running = 1}, 23, 1, 368},
      {"what experts have no use for", {.budget = 12 * kMiB, .max_running = 8}, 96, 8, 512},
      {"more than everything", {.budget = 64 * kMiB, .max_running = 2}, 64, 2, 512},
      {"a context beyond the share", {.budget = 10 * kMiB, .max_context = 512, .max_running = 8}, 32, 2, 512},
      {"given KV", {.budget = 8 * kMiB, .kv_budget = 30 * 16384 + 5, .max_running = 8}, 15, 3, 240},
      {"given KV and a context", {.budget = 8 * kMiB, .kv_budget = 30 * 16384, .max_context = 320, .max_running = 8}, 20, 2, 320},
      {"the least KV", {.budget = 8 * kMiB, .kv_budget = 6 * 16384, .max_running = 8}, 1, 1, 16},
  };
  for (const SlotsCase& test : cases) {
    SCOPED_TRACE(test.name);
    const auto plan = PlanMemory(needs, test.request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->kv_pages, test.kv_pages);
    EXPECT_EQ(plan->kv_slots, test.kv_slots);
    EXPECT_EQ(plan->kv, test.kv_pages * needs.kv_page + test.kv_slots * needs.kv_slot);
    EXPECT_EQ(plan->max_context, test.max_context);
    EXPECT_EQ(SumOf(*plan), kFixed + plan->kv + plan->cache);
    EXPECT_LE(SumOf(*plan), test.request.budget);
    EXPECT_THAT(plan->Table(), HasSubstr(StrCat(test.kv_slots, test.kv_slots == 1 ? " sequence at once" : " sequences at once")));
  }
}

TEST(MemoryPlan, CheckpointsGetAnEighthOfTheShare) {
  const MemoryNeeds needs = NeedsWithSlots();
  struct Case {
    MemoryRequest request;
    int sequences, checkpoints;
  };
  const Case cases[] = {
      {{.budget = 8 * kMiB, .max_running = 8, .checkpoints = 8}, 2, 0},
      {{.budget = 12 * kMiB, .max_running = 8, .checkpoints = 8}, 8, 3},  // an eighth of what is left beside all experts
      {{.budget = 16 * kMiB, .max_running = 8, .checkpoints = 8}, 8, 8},
      {{.budget = 64 * kMiB, .max_running = 2, .checkpoints = 4}, 2, 4},
      {{.budget = 64 * kMiB, .max_running = 2}, 2, 0},
      {{.budget = 8 * kMiB, .kv_budget = 80 * 16384, .max_running = 3, .checkpoints = 8}, 3, 2},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(StrCat(test.request.budget, " bytes, ", test.request.checkpoints, " checkpoints"));
    const auto plan = PlanMemory(needs, test.request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->kv_slots, test.sequences + test.checkpoints);
    EXPECT_EQ(plan->kv, plan->kv_pages * needs.kv_page + plan->kv_slots * needs.kv_slot);
    EXPECT_LE(SumOf(*plan), test.request.budget);
    EXPECT_THAT(plan->Table(), HasSubstr(StrCat(test.sequences, " sequences at once")));
    EXPECT_EQ(plan->Table().find("checkpoint") != std::string::npos, test.checkpoints > 0);
  }
}

TEST(MemoryPlan, ExpertsThatAPresetHasNoUseForLeaveTheirRoom) {
  MemoryNeeds needs = Needs();
  needs.most_cache = 10 * needs.record;
  const auto plan = PlanMemory(needs, {.budget = 8 * kMiB, .max_running = 8});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->cache, needs.most_cache);
  EXPECT_EQ(plan->kv_pages, 256) << "eight whole contexts";
}

// Experts have room beside what is lent, too, before keys and values have more than their share.
TEST(MemoryPlan, WhatIsLentIsNotUnused) {
  MemoryNeeds needs = Needs();
  needs.lent = kMiB;
  const uint64_t all = kFixed + needs.all_experts + needs.lent;
  for (const auto& [pages, given] : {std::pair(20, 33), {40, 40}, {100, 100}}) {
    const auto plan = PlanMemory(needs, {.budget = all + static_cast<uint64_t>(pages) * 16384, .max_running = 8});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->kv_pages, given);
    EXPECT_EQ(plan->cache, needs.all_experts);
  }
}

// A larger budget never gives less, where it is larger by more than a page.
TEST(MemoryPlan, GrowsWithTheBudget) {
  for (const int max_running : {1, 2, 8}) {
    MemoryPlan before;
    for (uint64_t budget = 4 * kMiB; budget < 24 * kMiB; budget += 270'001) {
      const auto plan = PlanMemory(Needs(), {.budget = budget, .max_running = max_running});
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_GE(plan->cache, std::min(before.cache, Needs().all_experts)) << budget;
      EXPECT_GE(plan->kv_pages, before.kv_pages) << budget;
      EXPECT_GE(plan->max_context, before.max_context) << budget;
      if (plan->cache == Needs().all_experts && plan->kv_pages < 32 * max_running) {
        EXPECT_LT(budget - SumOf(*plan), Needs().kv_page) << budget;
      }
      before = *plan;
    }
    EXPECT_EQ(before.kv_pages, 32 * max_running);
  }
}

// The cache alone grows, but for the page tables of what was added. What a budget gives does not depend on those before it.
TEST(MemoryPlan, OfAnotherBudget) {
  MemoryNeeds needs = Needs();
  needs.all_experts *= 1024;
  const MemoryPlan plan = *PlanMemory(needs, {.budget = 1024 * kMiB});
  const auto larger = ResizePlan(plan, 2048 * kMiB);
  ASSERT_TRUE(larger.ok()) << larger.status();
  EXPECT_EQ(larger->cache, plan.cache + 1024 * kMiB - 2 * kMiB);
  EXPECT_EQ(SumOf(*larger), larger->budget - 2 * kMiB);
  const auto smaller = ResizePlan(*larger, 512 * kMiB);
  ASSERT_TRUE(smaller.ok()) << smaller.status();
  EXPECT_EQ(smaller->cache, plan.cache - 512 * kMiB) << "those of the first GiB are not counted";
  EXPECT_EQ(ResizePlan(*smaller, 1024 * kMiB)->cache, plan.cache);
  EXPECT_EQ(ResizePlan(*smaller, 2048 * kMiB)->cache, larger->cache);
  EXPECT_EQ(ResizePlan(plan, 16384 * kMiB)->cache, needs.all_experts);
  EXPECT_EQ(ResizePlan(plan, 2 * kMiB).status().code(), absl::StatusCode::kResourceExhausted);
}

// No layer sees all positions: any context fits, and only sequences cost.
TEST(MemoryPlan, WithoutPagesTheContextIsTheModels) {
  MemoryNeeds needs = NeedsWithSlots();
  needs.kv_page = 0;
  for (const std::optional<uint64_t> kv_budget : {std::optional<uint64_t>(), std::optional<uint64_t>(12 * 16384)}) {
    const auto plan = PlanMemory(needs, {.budget = 12 * kMiB, .kv_budget = kv_budget, .max_running = 3});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->max_context, 512);
    EXPECT_GE(plan->kv_pages, 32);
    EXPECT_EQ(plan->kv_slots, kv_budget ? 1 : 3);
    EXPECT_EQ(plan->kv, plan->kv_slots * needs.kv_slot);
  }
}

// The number in the error is right to the byte.
TEST(MemoryPlan, TheSmallestBudgetWorksAndOneByteLessDoesNot) {
  MemoryNeeds large_records = Needs();
  large_records.record = 40 * kMiB;  // a sixteenth of the rest would be more KV than there is room for
  MemoryNeeds short_model = Needs();
  short_model.model_context = 40;
  MemoryNeeds lending = Needs();
  lending.lent = kMiB;
  const MemoryRequest requests[] = {{.budget = 1},
                                    {.budget = 1, .max_running = 8},
                                    {.budget = 1, .kv_budget = 3 * kMiB},
                                    {.budget = 1, .max_context = 33},
                                    {.budget = 1, .kv_budget = kMiB, .max_context = 30}};
  for (const MemoryNeeds& needs : {Needs(), large_records, short_model, lending, NeedsWithSlots()}) {
    for (MemoryRequest request : requests) {
      const absl::Status refused = PlanMemory(needs, request).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
      const std::string text = TextOf(refused);
      for (const char* part : {"trunk", "kv", "cache", "scratch", "tokenizer", "tables", "queues"})
        EXPECT_THAT(text, HasSubstr(part));
      std::smatch smallest;
      ASSERT_TRUE(std::regex_search(text, smallest, std::regex("smallest budget that works: ([0-9]+) bytes"))) << text;
      request.budget = ParseBytes(smallest[1].str()).value();
      const auto plan = PlanMemory(needs, request);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_GE(plan->cache, needs.record + needs.lent);
      EXPECT_LE(SumOf(*plan), request.budget);
      --request.budget;
      EXPECT_EQ(PlanMemory(needs, request).status().code(), absl::StatusCode::kResourceExhausted);
    }
  }
}

TEST(MemoryPlan, ContradictionsAreNamed) {
  struct Contradiction {
    MemoryRequest request;
    std::vector<std::string> says;
  };
  const Contradiction cases[] = {
      {{.budget = 8 * kMiB, .max_context = 513}, {"513", "512"}},
      {{.budget = 8 * kMiB, .max_context = 0}, {"max context 0"}},
      {{.budget = 8 * kMiB, .max_context = -5}, {"-5"}},
      {{.budget = 8 * kMiB, .kv_budget = 16383}, {"16383", "no page", "16384"}},
      {{.budget = 8 * kMiB, .kv_budget = 16384, .max_context = 17}, {"16 positions", "17", "32768"}},
      {{.budget = 8 * kMiB, .max_running = 0}, {"max running 0"}},
  };
  for (const Contradiction& test : cases) {
    const absl::Status status = PlanMemory(Needs(), test.request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : test.says) EXPECT_THAT(TextOf(status), HasSubstr(part));
  }
  const Contradiction with_slots[] = {
      {{.budget = 8 * kMiB, .kv_budget = 6 * 16384 - 1}, {"98303", "no page", "16384", "81920"}},
      {{.budget = 8 * kMiB, .kv_budget = 7 * 16384, .max_context = 33}, {"32 positions", "33", "131072"}},
  };
  for (const Contradiction& test : with_slots) {
    const absl::Status status = PlanMemory(NeedsWithSlots(), test.request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : test.says) EXPECT_THAT(TextOf(status), HasSubstr(part));
  }
}

// Keys and values are the device's with all that trunk and scratch leave there; the host has what is said of them.
MemoryNeeds NeedsOfDevice() {
  MemoryNeeds needs = NeedsWithSlots();
  needs.trunk = 0;
  needs.scratch = 100'000;
  needs.device_trunk = 2 * kMiB;
  needs.device_scratch = 400'000;
  needs.kv_page_tables = 384;
  needs.kv_slot_tables = 128;
  needs.kv_page += needs.kv_page_tables;
  needs.kv_slot += needs.kv_slot_tables;
  return needs;
}

uint64_t DeviceSumOf(const MemoryPlan& plan) {
  uint64_t sum = 0;
  for (const MemoryPart& part : plan.device_parts) sum += part.bytes;
  return sum;
}

TEST(MemoryPlan, OfADeviceWithMemoryOfItsOwn) {
  const MemoryNeeds needs = NeedsOfDevice();
  constexpr uint64_t kOnHost = 100'000 + 300'000 + 70'000 + 40'000, kOnDevice = 2 * kMiB + 400'000;
  struct Case {
    MemoryRequest request;
    int pages, slots;
  };
  const Case cases[] = {
      {{.budget = 8 * kMiB, .device_budget = kOnDevice + 21 * 16384}, 16, 1},
      {{.budget = 8 * kMiB, .device_budget = kOnDevice + 40 * 16384}, 32, 1},
      {{.budget = 8 * kMiB, .device_budget = 64 * kMiB, .max_running = 2}, 64, 2},
      {{.budget = 8 * kMiB, .device_budget = 64 * kMiB, .max_running = 2, .checkpoints = 4}, 64, 6},
      {{.budget = 8 * kMiB, .device_budget = 64 * kMiB, .kv_budget = 15 * 16384}, 10, 1},
  };
  for (const Case& test : cases) {
    const auto plan = PlanMemory(needs, test.request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    SCOPED_TRACE(plan->Table());
    EXPECT_EQ(plan->kv_pages, test.pages);
    EXPECT_EQ(plan->kv_slots, test.slots);
    EXPECT_EQ(plan->kv, static_cast<uint64_t>(test.pages + 5 * test.slots) * 16384);
    EXPECT_EQ(DeviceSumOf(*plan), kOnDevice + plan->kv);
    EXPECT_LE(DeviceSumOf(*plan), plan->device_budget);
    const uint64_t tables = static_cast<uint64_t>(test.pages) * 384 + static_cast<uint64_t>(test.slots) * 128;
    EXPECT_EQ(SumOf(*plan), kOnHost + tables + plan->cache);
    EXPECT_EQ(plan->cache, std::min(needs.all_experts, 8 * kMiB - kOnHost - tables));
    EXPECT_THAT(plan->Table(), HasSubstr("device budget"));
  }
}

// Of a device with room for experts the host's cache keeps the others, and what is on its way.
TEST(MemoryPlan, ExpertsLieOnADeviceWithRoomForThem) {
  MemoryNeeds needs = NeedsOfDevice();
  needs.least_device_cache = 8 * needs.record;
  const uint64_t fixed = needs.device_trunk + needs.device_scratch, least_kv = 21 * 16384;
  struct Case {
    uint64_t beside_fixed, device_cache;
  };
  const uint64_t kv = 1u << 20;  // of 16 MiB
  for (const Case& test : {Case{least_kv + needs.least_device_cache - 1, 0},
                           {least_kv + needs.least_device_cache, needs.least_device_cache},
                           {16 * kv, std::min(needs.all_experts, 15 * kv)}}) {
    const auto plan = PlanMemory(needs, {.budget = 8 * kMiB, .device_budget = fixed + test.beside_fixed, .max_running = 100});
    ASSERT_TRUE(plan.ok()) << plan.status();
    SCOPED_TRACE(plan->Table());
    EXPECT_EQ(plan->device_cache, test.device_cache);
    EXPECT_LE(DeviceSumOf(*plan), plan->device_budget);
    EXPECT_EQ(DeviceSumOf(*plan), fixed + plan->kv + plan->device_cache);
    EXPECT_LE(SumOf(*plan), plan->budget);
    const uint64_t moved = test.device_cache - std::min(test.device_cache, needs.least_device_cache);
    EXPECT_GE(plan->cache, std::min(needs.all_experts - moved, needs.record));
    EXPECT_LE(plan->cache, needs.all_experts - moved);
  }
}

// Once all experts lie there the rest is for keys and values, but for what the host's experts would lack for it.
TEST(MemoryPlan, ADevicesRestIsForKeysAndValues) {
  MemoryNeeds needs = NeedsOfDevice();
  needs.least_device_cache = 8 * needs.record;
  const uint64_t device_budget = needs.device_trunk + needs.device_scratch + needs.all_experts + 200 * 16384;
  const auto plan = [&](uint64_t budget) {
    return PlanMemory(needs, {.budget = budget, .device_budget = device_budget, .max_running = 4}).value();
  };
  const MemoryPlan enough = plan(8 * kMiB);
  EXPECT_EQ(enough.kv_slots, 4);
  EXPECT_EQ(enough.max_context, 512);
  EXPECT_EQ(enough.kv_pages, 128);
  EXPECT_EQ(enough.device_cache, needs.all_experts);
  const uint64_t least = SumOf(enough);
  EXPECT_EQ(plan(least).kv_pages, 128);
  const MemoryPlan tight = plan(least - 1);
  EXPECT_LT(tight.kv_pages, 64);
  EXPECT_EQ(tight.device_cache, needs.all_experts);
  EXPECT_EQ(tight.cache, enough.cache);
}

TEST(MemoryPlan, RefusesADeviceOrAHostThatIsTooSmall) {
  const MemoryNeeds needs = NeedsOfDevice();
  const uint64_t least = 2 * kMiB + 400'000 + 21 * 16384;
  const absl::Status small_device = PlanMemory(needs, {.budget = 8 * kMiB, .device_budget = least - 1}).status();
  EXPECT_EQ(small_device.code(), absl::StatusCode::kResourceExhausted);
  for (const std::string& part : {std::string("a device budget of "), std::string("trunk"), std::string("256 positions"),
                                  StrCat("the smallest budget that works: ", least, " bytes")}) {
    EXPECT_THAT(TextOf(small_device), HasSubstr(part));
  }
  EXPECT_TRUE(PlanMemory(needs, {.budget = 8 * kMiB, .device_budget = least}).ok());

  const uint64_t least_host = 100'000 + 300'000 + 70'000 + 40'000 + 16 * 384 + 128 + 28'672;
  EXPECT_TRUE(PlanMemory(needs, {.budget = least_host, .device_budget = least}).ok());
  const absl::Status small_host = PlanMemory(needs, {.budget = least_host - 1, .device_budget = least}).status();
  EXPECT_THAT(TextOf(small_host), HasSubstr(StrCat("the smallest budget that works: ", least_host, " bytes")));
}

}  // namespace memory_plan_test
}  // namespace moed
