#include "core/engine/step_size.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace moed {
namespace {

constexpr int kLeast = 64, kMost = 512;
constexpr double kShare = .75;

// A step reads while it computes, and ends when both are done.
struct Machine {
  double read_seconds = 0;
  double token_seconds = 0;

  void Step(StepSize& step, int tokens) const {
    const double computed = token_seconds * tokens, seconds = std::max(computed, read_seconds);
    step.OnStep(tokens, seconds, seconds - computed);
  }
  // As many as a long prompt gives.
  int After(StepSize& step, int steps) const {
    for (int i = 0; i < steps; ++i) Step(step, step.tokens());
    return step.tokens();
  }
};

constexpr Machine kInMemory{0, .001}, kSlowDisk{1, .001}, kFastDisk{.2, .001};

TEST(StepSizeTest, IsAsSmallAsItMayBeWhereNothingIsRead) {
  StepSize step(kLeast, kMost, kShare);
  EXPECT_EQ(kInMemory.After(step, 20), kLeast);
}

TEST(StepSizeTest, GrowsToWhatIsComputedMeanwhileAndNoFurther) {
  StepSize step(kLeast, kMost, kShare);
  EXPECT_EQ(kFastDisk.After(step, 20), 150);  // three quarters of 200
  EXPECT_EQ(kSlowDisk.After(step, 20), kMost);
}

TEST(StepSizeTest, ShrinksWithinAFewStepsOnceExpertsAreInMemory) {
  StepSize step(kLeast, kMost, kShare);
  ASSERT_EQ(kSlowDisk.After(step, 2), kMost);
  EXPECT_EQ(kInMemory.After(step, 8), kLeast);
}

TEST(StepSizeTest, TheEndOfAPromptSaysNothingOfLargerSteps) {
  StepSize step(kLeast, kMost, kShare);
  ASSERT_EQ(kSlowDisk.After(step, 2), kMost);
  kInMemory.Step(step, 10);
  EXPECT_EQ(step.tokens(), kMost);
}

TEST(StepSizeTest, WhatCannotBeIsNotBelieved) {
  StepSize step(kLeast, kMost, kShare);
  step.OnStep(64, 1, 1);
  step.OnStep(64, 1, 2);
  step.OnStep(0, 1, .5);
  step.OnStep(64, 1, -1);
  EXPECT_EQ(step.tokens(), kLeast);
}

TEST(StepSizeTest, WithOneSizeThatIsIt) {
  StepSize step(kLeast, kLeast, kShare);
  EXPECT_EQ(kSlowDisk.After(step, 3), kLeast);
}

}  // namespace
}  // namespace moed
