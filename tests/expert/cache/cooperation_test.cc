// Which experts the processor computes beside a device.
#include "core/expert/cache/cooperation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace moed {
namespace cooperation_test {

constexpr uint64_t kBytes = 1000;

// Of a layer with so many experts of one token each.
std::vector<bool> Layer(Cooperation& cooperation, int experts, int tokens = 1) {
  cooperation.BeginLayer(tokens);
  std::vector<bool> on_processor;
  for (int i = 0; i < experts; ++i) on_processor.push_back(cooperation.OnProcessor(kBytes, 1));
  return on_processor;
}

using testing::Each;
using testing::ElementsAre;

TEST(Cooperation, TriesWhatWasNeverMeasured) {
  Cooperation cooperation(1e-9);
  EXPECT_THAT(Layer(cooperation, 3), Each(true));
}

TEST(Cooperation, SharesALayerByThePrices) {
  Cooperation cooperation(2e-9);
  cooperation.OnComputed(kBytes, 1, 1e-9 * kBytes);  // half of what bringing costs
  // Ends of the two kinds of work, in microseconds: 1 of 2, 2 of 2, 3 against 2, 3 against 4, 4 against 4, 5 against 4.
  EXPECT_THAT(Layer(cooperation, 6), ElementsAre(true, true, false, true, true, false));
  EXPECT_THAT(Layer(cooperation, 1), Each(true)) << "every layer begins with nothing to do";
  Cooperation slow(1e-9);
  slow.OnComputed(kBytes, 1, 3e-9 * kBytes);
  EXPECT_THAT(Layer(slow, 3), ElementsAre(false, false, true));
}

TEST(Cooperation, WhatIsBroughtAnywayKeepsTheBusBusy) {
  Cooperation cooperation(1e-9);
  cooperation.OnComputed(kBytes, 1, 3e-9 * kBytes);
  cooperation.BeginLayer(1);
  cooperation.OnBrought(2 * kBytes);
  EXPECT_TRUE(cooperation.OnProcessor(kBytes, 1));
  EXPECT_FALSE(cooperation.OnProcessor(kBytes, 1));
}

TEST(Cooperation, LeavesLargeStepsToTheDevice) {
  Cooperation cooperation(1);
  EXPECT_THAT(Layer(cooperation, 3, kMostTokensOfProcessor), Each(true));
  EXPECT_THAT(Layer(cooperation, 3, kMostTokensOfProcessor + 1), Each(false));
}

TEST(Cooperation, PricesAreThoseOfTheNearestNumberOfTokens) {
  Cooperation cooperation(2e-9);
  cooperation.OnComputed(kBytes, 1, 1e-9 * kBytes);
  cooperation.OnComputed(kBytes, 8, 9e-9 * kBytes);
  cooperation.BeginLayer(8);
  EXPECT_FALSE(cooperation.OnProcessor(kBytes, 7));
  EXPECT_TRUE(cooperation.OnProcessor(kBytes, 2));
}

TEST(Cooperation, FollowsWhatIsMeasured) {
  Cooperation cooperation(1e-9);
  cooperation.OnComputed(kBytes, 1, 3e-9 * kBytes);
  EXPECT_FALSE(Layer(cooperation, 1)[0]);
  for (int i = 0; i < 40; ++i) cooperation.OnComputed(kBytes, 1, .5e-9 * kBytes);
  EXPECT_TRUE(Layer(cooperation, 1)[0]);
}

}  // namespace cooperation_test
}  // namespace moed
