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
