#include "core/expert/cold_cost.h"

#include <gtest/gtest.h>

namespace moed {
namespace cold_cost_test {

// 100 MB a second.
ExpertStats Measured(uint64_t cache_bytes) {
  ExpertStats stats;
  stats.load_bytes = {{150'000'000, 50'000'000}};
  stats.read_busy_nanos = 2'000'000'000;
  stats.cache_bytes = cache_bytes;
  return stats;
}

TEST(ColdCostTest, IsWhatIsMissingOverTheBandwidth) {
  const ColdModel model{.expert_bytes = 1'000'000'000, .experts = 64, .top_k = 8};
  EXPECT_NEAR(*ColdSeconds(model, Measured(0), 1), 1.25, 1e-6) << "an eighth of the experts";
  EXPECT_NEAR(*ColdSeconds(model, Measured(0), 1000), 10, 1e-6) << "all of them";
  EXPECT_NEAR(*ColdSeconds(model, Measured(900'000'000), 1000), 1, 1e-6);
  EXPECT_EQ(ColdSeconds(model, Measured(200'000'000), 1), 0) << "all that it needs may be in memory";
}

TEST(ColdCostTest, IsNotKnownWithoutAMeasurement) {
  const ColdModel model{.expert_bytes = 1'000'000'000, .experts = 64, .top_k = 8};
  ExpertStats stats = Measured(0);
  stats.read_busy_nanos = 1000;
  EXPECT_EQ(ColdSeconds(model, stats, 1), std::nullopt);
  EXPECT_EQ(ColdSeconds(model, ExpertStats(), 1), std::nullopt);
  EXPECT_EQ(ColdSeconds({}, Measured(0), 1), std::nullopt) << "a model without experts";
}

}  // namespace cold_cost_test
}  // namespace moed
