#include "core/engine/intake.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace moed {
namespace intake_test {

// As the engines do, `build` takes the request that Submit was given apart.
TEST(IntakeTest, WhatCannotBeBuiltLeavesSessionAndPlace) {
  Intake intake(1, 1, 1);
  const EngineRequest wanted = {.name = "job", .tenant = "alice", .prompt = {TokenId(1), TokenId(2)}, .session_id = "alice/chat"};
  EngineRequest request = wanted;
  const auto fails = [&](RequestId, std::unique_ptr<Sequence>&) -> std::unique_ptr<LiveRequest> {
    const EngineRequest taken = std::move(request);
    throw std::bad_alloc();
  };
  EXPECT_THROW(intake.Submit(request, {.max_context = 8}, fails).IgnoreError(), std::bad_alloc);
  EXPECT_EQ(intake.live(), 0);
  EXPECT_TRUE(intake.Idle());
  EXPECT_FALSE(intake.HasSession("alice/chat"));
  EXPECT_EQ(intake.Find("alice/job"), std::nullopt);

  const auto builds = [](RequestId id, std::unique_ptr<Sequence>& sequence) {
    auto live = std::make_unique<LiveRequest>();
    live->id = id;
    live->sequence = std::move(sequence);
    return live;
  };
  const auto again = intake.Submit(wanted, {.max_context = 8}, builds);
  EXPECT_TRUE(again.ok()) << again.status();
}

}  // namespace intake_test
}  // namespace moed
