// The search by hand-made losses: what it measures, ranks and chooses.
#include "tools/plan/widths_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "core/base/status.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Precision kQ8 = 0, kQ4 = 1, kQ2 = 2;
const std::vector<Width> kWidths = {{kQ8, "q8", 800}, {kQ4, "q4", 400}, {kQ2, "q2", 200}};

// Nats add up: expert e costs weight[e] at q2, a tenth of it at q4, nothing at q8.
class Model {
 public:
  explicit Model(std::vector<double> weights) : weights_(std::move(weights)) {}

  absl::StatusOr<double> Nats(const std::vector<Precision>& precisions) {
    measured_.insert(std::string(precisions.begin(), precisions.end()));
    double nats = 3;
    for (size_t e = 0; e < precisions.size(); ++e) {
      nats += precisions[e] == kQ2 ? weights_[e] : precisions[e] == kQ4 ? weights_[e] / 10 : 0;
    }
    return nats;
  }
  absl::StatusOr<WidthsPlan> Plan(double tolerable_loss, std::vector<Width> widths = kWidths) {
    const WidthsQuestion question{std::move(widths), static_cast<int>(weights_.size()), tolerable_loss};
    const auto plan = SearchWidths(question, [this](const std::vector<Precision>& p) { return Nats(p); });
    EXPECT_LE(measured_.size(), static_cast<size_t>(MostMeasurements(question)));
    return plan;
  }
  size_t measured() const { return measured_.size(); }

 private:
  std::vector<double> weights_;
  std::set<std::string> measured_;  // configurations, a character an expert
};

// All at q2 cost 0.15 nats (16 %), all at q4 0.015 (1.5 %). By importance: 1, 3, 0, 2.
const std::vector<double> kWeights = {0.04, 0.01, 0.08, 0.02};

TEST(WidthsSearch, LowersTheLeastImportantByHand) {
  // Bracket q4 and q2. K = 2 (experts 1 and 3): 0.03 + 0.012 = 0.042 nats = 4.29 %; K = 3: 0.07 + 0.008 = 0.078 = 8.11 %.
  const auto plan = Model(kWeights).Plan(0.05);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->upper, 1u);
  EXPECT_EQ(plan->lower, 2u);
  EXPECT_EQ(plan->lowered, 2);
  EXPECT_THAT(plan->precisions, ElementsAre(kQ4, kQ2, kQ4, kQ2));
  EXPECT_NEAR(plan->loss, std::expm1(0.042), 1e-12);
  EXPECT_NEAR(plan->uniform_losses[1], std::expm1(0.015), 1e-12);
  EXPECT_NEAR(plan->importance[2], 0.072, 1e-12);  // q2 instead of q4, the others at q4
}

TEST(WidthsSearch, AStricterLossUsesTheWiderPair) {
  // 1 % is less than q4's 1.5 %: between q8 and q4. K = 3 (1, 3, 0): 0.007 nats.
  const auto plan = Model(kWeights).Plan(0.01);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->upper, 0u);
  EXPECT_THAT(plan->precisions, ElementsAre(kQ4, kQ4, kQ8, kQ4));
  EXPECT_NEAR(plan->loss, std::expm1(0.007), 1e-12);
}

TEST(WidthsSearch, TheBoundItselfIsWithin) {
  const double exactly = std::expm1(*Model(kWeights).Nats({kQ4, kQ2, kQ4, kQ2}) - 3);
  EXPECT_EQ(Model(kWeights).Plan(exactly)->lowered, 2);
  EXPECT_EQ(Model(kWeights).Plan(std::nextafter(exactly, 0.0))->lowered, 1);
}

TEST(WidthsSearch, EverythingAtTheNarrowestWhenThatDoes) {
  Model model(kWeights);
  const auto plan = model.Plan(0.2);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(plan->precisions, ElementsAre(kQ2, kQ2, kQ2, kQ2));
  EXPECT_EQ(plan->lowered, 4);
  EXPECT_EQ(model.measured(), 3u) << "nothing is ranked";
}

TEST(WidthsSearch, SaysWhatTheBestReaches) {
  Model model(kWeights);
  const absl::Status status = model.Plan(0.01, {kWidths[1], kWidths[2]}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("a loss of 1 % is less than q4 reaches"), HasSubstr("q4 1.51 %, q2 16.2 %")));
  EXPECT_EQ(model.measured(), 3u);
}

// On other text everything costs twice as much: half of what is allowed is planned for.
TEST(WidthsSearch, FewerAreLoweredUntilTheBoundHoldsOnOtherText) {
  std::vector<double> weights(16);
  for (size_t e = 0; e < weights.size(); ++e) weights[e] = 0.001 * static_cast<double>(e + 1);
  Model model(weights);
  WidthsQuestion question{{kWidths[0], kWidths[2]}, 16, 0.05, 0.95};
  const auto nats_of = [&](const std::vector<Precision>& p) { return model.Nats(p); };
  int looks = 0;
  const auto other_text = [&](double factor) {
    return [&, factor](const std::vector<Precision>& p, double confidence) -> absl::StatusOr<ConfirmedLoss> {
      ++looks;
      EXPECT_DOUBLE_EQ(confidence, 1 - 0.05 / kConfirmLooks);
      const double nats = (*model.Nats(p) - 3) * factor;
      return ConfirmedLoss{.loss = std::expm1(nats), .bound = std::expm1(nats) + (factor > 100 ? 1 : 0)};
    };
  };
  auto plan = SearchWidths(question, nats_of);
  ASSERT_TRUE(plan.ok());
  const int planned = plan->lowered;
  EXPECT_TRUE(ConfirmWidths(question, nats_of, other_text(1), *plan).ok());
  EXPECT_EQ(plan->lowered, planned) << "it holds as it is";
  EXPECT_EQ(looks, 1);
  EXPECT_TRUE(ConfirmWidths(question, nats_of, other_text(2), *plan).ok());
  EXPECT_TRUE(plan->confirmed->holds);
  EXPECT_LE(plan->confirmed->bound, 0.05);
  EXPECT_EQ(plan->lowered, 6) << "0.021 nats, twice: 4.3 %; one more: 5.8 %";
  EXPECT_LE(looks, 1 + kConfirmLooks);
  EXPECT_TRUE(ConfirmWidths(question, nats_of, other_text(1000), *plan).ok());
  EXPECT_FALSE(plan->confirmed->holds);
  EXPECT_EQ(plan->lowered, 0);
}

// Everything at the narrowest was within on the text planned on; what is to be raised has to be ranked first.
TEST(WidthsSearch, WhereNothingWasRankedItIsWhenTheBoundDoesNotHold) {
  Model model(kWeights);
  WidthsQuestion question{kWidths, 4, 0.2, 0.95};
  const auto nats_of = [&](const std::vector<Precision>& p) { return model.Nats(p); };
  auto plan = SearchWidths(question, nats_of);
  ASSERT_TRUE(plan.ok());
  const auto twice = [&](const std::vector<Precision>& p, double) -> absl::StatusOr<ConfirmedLoss> {
    const double loss = std::expm1(2 * (*model.Nats(p) - 3));
    return ConfirmedLoss{.loss = loss, .bound = loss};
  };
  EXPECT_TRUE(ConfirmWidths(question, nats_of, twice, *plan).ok());
  EXPECT_TRUE(plan->confirmed->holds);
  EXPECT_EQ(plan->lowered, 3);
  EXPECT_THAT(plan->precisions, ElementsAre(kQ2, kQ2, kQ4, kQ2)) << "0.07 + 0.008 nats, twice: 16.9 %";
}

TEST(WidthsSearch, ABoundByTheSpreadOfPieces) {
  const std::vector<int> tokens = {100, 100, 100, 100};
  const ConfirmedLoss even = BoundLoss(std::vector<double>{2, 2, 2, 2}, tokens, 0.95);
  EXPECT_NEAR(even.loss, std::expm1(0.02), 1e-12);
  EXPECT_NEAR(even.bound, even.loss, 1e-12);
  // Deviations of 1: standard error sqrt(4 * 4 / 3) / 400; Student's t of 3 degrees at 95 %: 2.3534.
  const ConfirmedLoss spread = BoundLoss(std::vector<double>{1, 3, 1, 3}, tokens, 0.95);
  EXPECT_NEAR(spread.bound, std::expm1(0.02 + 2.35336 * std::sqrt(16.0 / 3) / 400), 1e-6);
}

TEST(WidthsSearch, ErrorsOfAMeasurementEndIt) {
  const WidthsQuestion question{kWidths, 4, 0.05};
  int calls = 0;
  const auto plan = SearchWidths(question, [&](const std::vector<Precision>&) -> absl::StatusOr<double> {
    if (++calls == 6) return absl::CancelledError("interrupted");
    return 3.0 + 0.02 * calls;
  });
  EXPECT_TRUE(absl::IsCancelled(plan.status()));
  EXPECT_EQ(calls, 6);
}

}  // namespace
}  // namespace moed
