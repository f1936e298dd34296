#include "server/plan/decode_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moed {
namespace {

using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::Le;
using ::testing::Lt;

constexpr DiskRead kDisk = {.one_seconds = 2e-3, .burst_seconds = 5e-3, .depth = 4, .block_bytes = 1 << 20};
constexpr DecodeWork kWork = {.layers = 10, .moe_layers = 8, .top_k = 4, .vocabulary = 4096, .cache_records = 100};
constexpr double kProducts = 20e-3;

TEST(HitCurves, BeginAtNothingEndAtAllAndRise) {
  for (const HitCurve* curve : {&UniformRouting(), &DemoRouting(), &GptOssRouting()}) {
    EXPECT_THAT(curve->At(0), DoubleEq(0)) << curve->name;
    EXPECT_THAT(curve->At(1), DoubleEq(1)) << curve->name;
    EXPECT_THAT(curve->At(2), DoubleEq(1)) << curve->name;
    for (double share = 0.05; share <= 1; share += 0.05) {
      EXPECT_THAT(curve->At(share), Ge(curve->At(share - 0.05))) << curve->name << " at " << share;
      EXPECT_THAT(curve->At(share), Ge(UniformRouting().At(share) - 1e-9)) << curve->name << " at " << share;
    }
  }
}

TEST(DecodeSpeedTest, WithEverythingInMemoryOnlyComputingCounts) {
  const DecodeSpeed speed = ExpectDecode(kWork, kProducts, kDisk, 1);
  EXPECT_THAT(speed.waiting_seconds, DoubleEq(0));
  EXPECT_THAT(speed.read_bytes, DoubleEq(0));
  EXPECT_THAT(speed.TokensPerSecond(), DoubleEq(1 / (kProducts + 10 * kLayerSeconds + 4096 * kLogitSeconds + kTokenSeconds)));
}

TEST(DecodeSpeedTest, WithNothingInMemoryEveryLayerWaitsForABurst) {
  const DecodeSpeed speed = ExpectDecode(kWork, kProducts, kDisk, 0);
  const double beside = speed.compute_seconds / kWork.moe_layers;
  EXPECT_THAT(beside, Lt(5e-3));
  EXPECT_THAT(speed.waiting_seconds, DoubleNear(8 * (5e-3 - kOverlap * beside), 1e-12));
  EXPECT_THAT(speed.read_bytes, DoubleEq(32.0 * (1 << 20)));
}

TEST(DecodeSpeedTest, ACacheOfFewRecordsReadsThemOneAfterTheOtherAndHidesNothing) {
  DecodeWork small = kWork;
  small.cache_records = 1;
  EXPECT_THAT(ExpectDecode(small, kProducts, kDisk, 0).waiting_seconds, DoubleNear(8 * 4 * 2e-3, 1e-12));
  small.cache_records = 2;
  EXPECT_THAT(ExpectDecode(small, kProducts, kDisk, 0).waiting_seconds, DoubleNear(8 * 2 * 3e-3, 1e-12));
  small.cache_records = 4;
  EXPECT_THAT(ExpectDecode(small, kProducts, kDisk, 0).waiting_seconds, DoubleNear(8 * 5e-3, 1e-12));
}

TEST(DecodeSpeedTest, ReadsThatFitBesideComputingAreHiddenInPart) {
  const DiskRead fast{.one_seconds = 2e-6, .burst_seconds = 5e-6, .depth = 4, .block_bytes = 1 << 20};
  const DecodeSpeed speed = ExpectDecode(kWork, kProducts, fast, 0);
  EXPECT_THAT(speed.waiting_seconds, DoubleNear(8 * 5e-6 * (1 - kOverlap), 1e-12));
}

TEST(DecodeSpeedTest, MoreHitsAndSmallerRecordsAreFaster) {
  double last = 0;
  for (double hits = 0; hits <= 1; hits += 0.1) {
    const double now = ExpectDecode(kWork, kProducts, kDisk, hits).TokensPerSecond();
    EXPECT_THAT(now, Gt(last)) << hits;
    last = now;
  }
  DecodeWork half = kWork;
  half.record_scale = 0.5;
  const DecodeSpeed smaller = ExpectDecode(half, kProducts, kDisk, 0.5), whole = ExpectDecode(kWork, kProducts, kDisk, 0.5);
  EXPECT_THAT(smaller.TokensPerSecond(), Gt(whole.TokensPerSecond()));
  EXPECT_THAT(smaller.read_bytes, DoubleEq(whole.read_bytes / 2));
}

}  // namespace
}  // namespace moed
