#include "core/expert/cache/prefetch_pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace moed {
namespace prefetch_pace_test {

constexpr int64_t kMicro = 1000;

// Layer steps of demands that take `records` records of `record` each, then `free` nanoseconds without any.
class Machine {
 public:
  void Run(PrefetchPace& pace, int layers, int records, int64_t record, int64_t free) {
    for (int i = 0; i < layers; ++i) {
      pace.OnLayer(now_, records > 0);
      for (int r = 0; r < records; ++r) {
        now_ += record;
        busy_ += record;
        pace.OnRecordRead(busy_);
      }
      if (records > 0) pace.OnDemandsRead(now_);
      now_ += free;
    }
  }

 private:
  int64_t now_ = 1000, busy_ = 0;
};

TEST(PrefetchPace, NothingPaysBeforeAnythingIsKnown) { EXPECT_EQ(PrefetchPace().LeastProbability(), PrefetchPace::kNever); }

TEST(PrefetchPace, AsksMoreOfGuessesTheLessOfAReadIsFree) {
  float before = 0;
  for (const int64_t record : {500 * kMicro, 1000 * kMicro, 2000 * kMicro, 4000 * kMicro}) {
    PrefetchPace pace;
    Machine().Run(pace, 500, 2, record, 1000 * kMicro);
    const float least = pace.LeastProbability();
    EXPECT_GE(least, before);
    EXPECT_NEAR(least, std::max(0.2f, 1 - 1000.f * kMicro / static_cast<float>(record)), 0.1f);
    before = least;
  }
  EXPECT_LT(before, 1);
  PrefetchPace slow;
  Machine().Run(slow, 500, 2, 100'000 * kMicro, 1000 * kMicro);
  EXPECT_EQ(slow.LeastProbability(), PrefetchPace::kNever);
}

// Of a record of a millisecond, half is free. What waits behind a tenth of one at most asks for little.
TEST(PrefetchPace, AsksLessOfGuessesThatGiveWay) {
  float before = 0;
  for (const double behind : {0.02, 0.1, 0.25, 0.5, 1.0}) {
    PrefetchPace pace(behind);
    Machine().Run(pace, 500, 2, 1000 * kMicro, 500 * kMicro);
    const double waits = std::min(0.5, behind);
    EXPECT_NEAR(pace.LeastProbability(), std::max(0.2, waits / (0.5 + waits) + 0.05), 0.01);
    EXPECT_GE(pace.LeastProbability(), before);
    before = pace.LeastProbability();
  }
}

// Nobody knows how long a pause will be; what it leaves free is a read.
TEST(PrefetchPace, APauseIsWorthNoMoreThanARead) {
  PrefetchPace pace(0.1);
  int64_t now = 0, busy = 0;
  const auto layer = [&](int64_t free) {
    pace.OnLayer(now, true);
    now += 10'000 * kMicro;
    pace.OnRecordRead(busy += 10'000 * kMicro);
    pace.OnDemandsRead(now);
    now += free;
  };
  for (int i = 0; i < 500; ++i) layer(200 * kMicro);
  const float before = pace.LeastProbability();
  EXPECT_GT(before, 0.8f);
  layer(600'000'000 * kMicro);
  layer(200 * kMicro);
  EXPECT_GT(pace.LeastProbability(), before - 0.1f);
}

// A token's head takes four reads' time, a layer leaves a fiftieth of one.
TEST(PrefetchPace, TheGapBetweenTokensIsAnother) {
  PrefetchPace pace(0.1);
  int64_t now = 0, busy = 0;
  for (int i = 0; i < 1000; ++i) {
    pace.OnLayer(now, true, i % 4 == 0 ? PrefetchPace::kBetweenTokens : PrefetchPace::kWithinToken);
    now += 10'000 * kMicro;
    pace.OnRecordRead(busy += 10'000 * kMicro);
    pace.OnDemandsRead(now);
    now += i % 4 == 3 ? 40'000 * kMicro : 200 * kMicro;
  }
  EXPECT_GT(pace.LeastProbability(), 0.8f);
  EXPECT_LT(pace.LeastProbability(PrefetchPace::kBetweenTokens), 0.25f);
  for (int i = 0; i < 200; ++i) pace.OnOutcome(false);  // of guesses within a token
  EXPECT_LT(pace.LeastProbability(PrefetchPace::kBetweenTokens), 0.25f);
}

TEST(PrefetchPace, NothingPaysWhereNothingIsMissing) {
  PrefetchPace pace;
  Machine machine;
  machine.Run(pace, 500, 1, 1000 * kMicro, 1000 * kMicro);
  EXPECT_LT(pace.LeastProbability(), 1);
  machine.Run(pace, 500, 0, 0, 1000 * kMicro);
  EXPECT_EQ(pace.LeastProbability(), PrefetchPace::kNever);
  machine.Run(pace, 500, 1, 1000 * kMicro, 1000 * kMicro);
  EXPECT_LT(pace.LeastProbability(), 1);
}

TEST(PrefetchPace, WrongGuessesEndItAndItTriesAgain) {
  PrefetchPace pace;
  Machine machine;
  machine.Run(pace, 500, 1, 2000 * kMicro, 1000 * kMicro);
  for (int i = 0; i < 100; ++i) pace.OnOutcome(true);
  const float trusted = pace.LeastProbability();
  for (int i = 0; i < 200; ++i) pace.OnOutcome(false);
  EXPECT_EQ(pace.LeastProbability(), PrefetchPace::kNever);
  machine.Run(pace, 5000, 1, 2000 * kMicro, 1000 * kMicro);
  EXPECT_NEAR(pace.LeastProbability(), trusted, 0.01f);
}

}  // namespace prefetch_pace_test
}  // namespace moed
