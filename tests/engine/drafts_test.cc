// Where a draft comes from, and how long it is.
#include "core/engine/drafts.h"

#include <gtest/gtest.h>

#include <string_view>

#include "tests/engine/engine_harness.h"

namespace moed {
namespace drafts_test {

TEST(PlaceOfDraftTest, FollowsTheLongestEarlierPieceThatIsLikeTheEnd) {
  struct Case {
    std::string_view text;
    std::optional<size_t> place;
  };
  for (const Case& c : std::initializer_list<Case>{{"", {}},
                                                   {"a", {}},
                                                   {"aaa", {}},
                                                   {"aaaa", 3},
                                                   {"xabcyzabc", 4},
                                                   {"xbcyzabc", {}},           // two are not enough
                                                   {"abc1abc2abc", 7},         // of equally long ones the last
                                                   {"abcd1bcd2abcd", 4},       // a longer one before it
                                                   {"12345678ab12345678", 8},  // eight are all that count
                                                   {"912345678a12345678b912345678", 18},
                                                   {"abababab", 6}}) {
    EXPECT_EQ(PlaceOfDraft(Bytes(c.text)), c.place) << c.text;
  }
}

TEST(DraftPricesTest, NothingIsDraftedBeforeAStepOfOneTokenIsKnown) {
  DraftPrices prices;
  EXPECT_EQ(prices.Length(1, 7), 0);
  prices.OnStep(0, 1000);
  EXPECT_EQ(prices.Length(0.7, 7), 2) << "to learn what more tokens take";
  EXPECT_EQ(prices.Length(0.7, 1), 1);
  EXPECT_EQ(prices.Length(0.7, 0), 0);
}

TEST(DraftPricesTest, DraftsAreAsLongAsTheyMakeTokensFaster) {
  for (const double price : {0.0, 0.1, 0.3, 0.6, 0.94, 2.0}) {
    DraftPrices prices;
    prices.OnStep(0, 1000);
    prices.OnStep(2, 1000 + static_cast<int64_t>(2 * price * 1000));
    int before = 0;
    for (const double share : {0.1, 0.3, 0.5, 0.7, 0.9, 1.0}) {
      const int length = prices.Length(share, 7);
      EXPECT_GE(length, before) << "who is right more often drafts more";
      before = length;
      double tokens = 1, reached = 1, best = 1.05, rate = 0;
      for (int l = 1; l <= 7; ++l) {
        tokens += reached *= share;
        if (l == length) rate = tokens / (1 + l * price);
        best = std::max(best, tokens / (1 + l * price));
      }
      if (length > 0) {
        EXPECT_NEAR(rate, best, 1e-9);
      } else {
        EXPECT_EQ(best, 1.05) << price << " " << share;
      }
    }
  }
}

TEST(DraftPricesTest, WhatDoesNotPayIsTriedAgainAfterAWhile) {
  DraftPrices prices;
  DraftTrust trust;
  prices.OnStep(0, 1000);
  prices.OnStep(2, 9000);  // experts were read
  trust.OnStep(2, 0);
  int skipped = 0;
  for (; prices.Length(trust.share(), 7) == 0; ++skipped) {
    ASSERT_LT(skipped, 1000);
    prices.OnSkipped();
    trust.OnSkipped();
  }
  EXPECT_GT(skipped, 20);
}

TEST(DraftTrialsTest, TheWayThatTakesLessATokenIsTakenMostOfTheTime) {
  for (const int with : {50, 90, 110, 200}) {
    SCOPED_TRACE(with);
    DraftTrials trials;
    constexpr int kSteps = 20'000, kWithout = 100;
    int open = 0;
    for (int i = 0; i < kSteps; ++i) {
      open += trials.open();
      trials.OnStep(trials.open() ? 3 : 1, trials.open() ? 3 * with : kWithout);
    }
    if (with < kWithout) {
      EXPECT_GT(open, kSteps * 9 / 10);
    } else {
      EXPECT_LT(open, kSteps / 10);
      EXPECT_GT(open, kSteps / 1000) << "tried again";
    }
  }
}

TEST(DraftTrialsTest, TheBeginOfAWindowDoesNotCount) {
  DraftTrials trials;
  int since = 0, open = 0;  // since the other way was taken, the first tokens are dear
  bool before = true;
  for (int i = 0; i < 20'000; ++i) {
    since = trials.open() == before ? since + 1 : 0;
    before = trials.open();
    open += before;
    trials.OnStep(1, (before ? 90 : 100) + (since < 20 ? 1000 : 0));
  }
  EXPECT_GT(open, 18'000);
}

TEST(DraftTrustTest, FollowsWhatIsSeen) {
  DraftTrust trust;
  for (int i = 0; i < 20; ++i) trust.OnStep(4, 4);
  EXPECT_GT(trust.share(), 0.99);
  for (int i = 0; i < 20; ++i) trust.OnStep(4, 0);
  EXPECT_LT(trust.share(), 0.1);
}

}  // namespace drafts_test
}  // namespace moed
