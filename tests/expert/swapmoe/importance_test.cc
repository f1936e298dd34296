// Equation 2 of SwapMoE by hand, the sets that follow, and the search for the update frequency.
#include "core/expert/swapmoe/importance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/expert/swapmoe/frequency.h"

namespace moed {
namespace importance_test {

using testing::ElementsAre;

const float kLog[] = {std::log(4.f), std::log(3.f), std::log(2.f), std::log(1.f)};

// |x| = 5, G = 0.4 0.3 0.2 0.1, the top two count.
TEST(SwapMoeImportance, IsNormOfTheInputTimesGateTimesNormOfTheExpert) {
  SwapMoeImportance importance(4, 2, {2, 1, 7, 7, 1, 1, 1, 1}, SwapMoeScore::kMagnitude);
  const float hidden[] = {3, 0, 4};
  importance.Add(0, hidden, kLog);
  EXPECT_NEAR(importance.Of(0, 0), 5 * 0.4 * 2, 1e-5);
  EXPECT_NEAR(importance.Of(0, 1), 5 * 0.3 * 1, 1e-5);
  EXPECT_EQ(importance.Of(0, 2), 0);
  EXPECT_EQ(importance.Of(1, 0), 0);
  const float other[] = {0, 1, 0};
  const float reversed[] = {kLog[3], kLog[2], kLog[1], kLog[0]};
  importance.Add(0, other, reversed);
  EXPECT_NEAR(importance.Of(0, 3), 0.4 * 7, 1e-5);
  EXPECT_NEAR(importance.Of(0, 2), 0.3 * 7, 1e-5);
  importance.Fade(0, .5);
  EXPECT_NEAR(importance.Of(0, 0), 2, 1e-5);
}

TEST(SwapMoeImportance, CountsTokensInTheAblation) {
  SwapMoeImportance importance(4, 2, {2, 1, 7, 7}, SwapMoeScore::kTokens);
  const float hidden[] = {3, 0, 4};
  for (int i = 0; i < 3; ++i) importance.Add(0, hidden, kLog);
  EXPECT_EQ(importance.Of(0, 0), 3);
  EXPECT_EQ(importance.Of(0, 1), 3);
  EXPECT_EQ(importance.Of(0, 2), 0);
}

TEST(SwapMoeImportance, ATokenThatIsNoNumberCountsNothing) {
  SwapMoeImportance importance(4, 2, {1, 1, 1, 1}, SwapMoeScore::kMagnitude);
  const float hidden[] = {NAN, 0, 4};
  importance.Add(0, hidden, kLog);
  EXPECT_EQ(importance.Of(0, 0), 0);
}

TEST(SwapMoeImportance, SetsAreTheMostImportantThenWhatIsThereThenTheLargerNorm) {
  SwapMoeImportance importance(4, 1, {1, 2, 3, 3}, SwapMoeScore::kMagnitude);
  std::vector<uint8_t> set = {1, 0, 0, 0};
  importance.ChooseByNorm(0, 2, set);
  EXPECT_THAT(set, ElementsAre(0, 0, 1, 1));
  set = {1, 0, 0, 0};
  importance.ChooseSet(0, 2, set);
  EXPECT_THAT(set, ElementsAre(1, 0, 1, 0));
  const float hidden[] = {1};
  const float favours_one[] = {0, 9, 0, 0};
  importance.Add(0, hidden, favours_one);
  importance.ChooseSet(0, 2, set);
  EXPECT_THAT(set, ElementsAre(0, 1, 1, 0));
}

class Search {
 public:
  explicit Search(SwapMoeFrequencyOptions options) : frequency_(options) {}
  // A window of as many steps as are judged.
  void Window(double seconds, bool late = false) {
    for (int i = 0; i < 4; ++i) frequency_.OnStep(1, seconds);
    frequency_.OnWindowEnd(late);
  }
  SwapMoeFrequency& frequency() { return frequency_; }

 private:
  SwapMoeFrequency frequency_;
};
constexpr SwapMoeFrequencyOptions kSearch = {.window = 64, .growth = 2, .tolerance = .1, .least_window = 8, .judged_steps = 4};

TEST(SwapMoeFrequency, RisesUntilStepsGetSlower) {
  Search search(kSearch);
  search.Window(1.0);
  EXPECT_EQ(search.frequency().window(), 32);
  search.Window(1.09);
  EXPECT_EQ(search.frequency().window(), 16);
  EXPECT_FALSE(search.frequency().settled());
  for (int i = 0; i < 3; ++i) search.Window(1.11);  // more than a tenth above the first
  EXPECT_EQ(search.frequency().window(), 32);
  EXPECT_TRUE(search.frequency().settled());
  search.Window(9);
  EXPECT_EQ(search.frequency().window(), 32);
}

// Steps of one trial may be slow for any reason; all of a window's trials together decide.
TEST(SwapMoeFrequency, OneSlowTrialIsTriedAgain) {
  Search search(kSearch);
  search.Window(1.0);
  search.Window(1.3);
  EXPECT_EQ(search.frequency().window(), 32);
  EXPECT_FALSE(search.frequency().settled());
  search.Window(1.0);  // 1.15 by now
  EXPECT_EQ(search.frequency().window(), 32);
  search.Window(0.95);  // 1.083
  EXPECT_EQ(search.frequency().window(), 16);
  EXPECT_FALSE(search.frequency().settled());
}

TEST(SwapMoeFrequency, LoadsThatAreLateEndItToo) {
  Search search(kSearch);
  search.Window(1);
  search.Window(1, /*late=*/true);
  EXPECT_EQ(search.frequency().window(), 64);
  EXPECT_TRUE(search.frequency().settled());
}

TEST(SwapMoeFrequency, FallsWhereTheFirstIsTooHigh) {
  Search search(kSearch);
  search.Window(1, true);
  EXPECT_EQ(search.frequency().window(), 128);
  search.Window(1, true);
  EXPECT_EQ(search.frequency().window(), 256);
  search.Window(1);
  EXPECT_EQ(search.frequency().window(), 256);
  EXPECT_TRUE(search.frequency().settled());
}

TEST(SwapMoeFrequency, StopsAtTheLeastWindowAndWithoutGrowth) {
  Search search(kSearch);
  for (int i = 0; i < 9; ++i) search.Window(1);
  EXPECT_EQ(search.frequency().window(), 8);
  EXPECT_TRUE(search.frequency().settled());
  SwapMoeFrequencyOptions fixed = kSearch;
  fixed.growth = 1;
  Search none(fixed);
  none.Window(1);
  EXPECT_EQ(none.frequency().window(), 64);
}

TEST(SwapMoeFrequency, ComparesStepsOfEqualTokensOnly) {
  Search search(kSearch);
  search.Window(1);
  for (int i = 0; i < 3; ++i) search.frequency().OnStep(3, 50);
  search.frequency().OnWindowEnd(false);  // too few of them
  EXPECT_EQ(search.frequency().window(), 32);
  search.frequency().OnStep(3, 50);
  search.frequency().OnWindowEnd(false);
  EXPECT_EQ(search.frequency().window(), 16);  // nothing to compare them with yet
}

}  // namespace importance_test
}  // namespace moed
