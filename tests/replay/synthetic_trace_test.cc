#include "bench/replay/synthetic_trace.h"

#include <gtest/gtest.h>

#include <set>

namespace moed {
namespace {

TEST(SyntheticTrace, HasTheShapeAndRepeatsItself) {
  const RoutingShape shape{.layers = {LayerId(0), LayerId(1), LayerId(2)}, .top_k = 4, .experts = 16};
  const RoutingTrace trace = SyntheticTrace(shape, 200);
  ASSERT_EQ(trace.tokens(), 200u);
  ASSERT_EQ(trace.replayed_tokens(), 200u);
  ASSERT_EQ(trace.experts.size(), 200u * 3 * 4);
  ASSERT_EQ(trace.probabilities.size(), trace.experts.size());
  size_t again = 0;
  for (size_t token = 0; token < 200; ++token) {
    for (int layer = 0; layer < 3; ++layer) {
      const size_t at = trace.At(token, layer);
      const std::set<int> chosen(trace.experts.begin() + static_cast<std::ptrdiff_t>(at),
                                 trace.experts.begin() + static_cast<std::ptrdiff_t>(at) + 4);
      EXPECT_EQ(chosen.size(), 4u) << "all different";
      EXPECT_LT(*chosen.rbegin(), 16);
      if (token == 0) continue;
      for (int slot = 0; slot < 4; ++slot) again += chosen.contains(trace.experts[trace.At(token - 1, layer) + slot]) ? 1 : 0;
    }
  }
  EXPECT_GT(again, 199u * 3 * 4 * 35 / 100) << "more than the quarter that chance gives";
  EXPECT_EQ(SyntheticTrace(shape, 200).experts, trace.experts);
}

TEST(SyntheticTrace, HasAsManySequencesAsAreAskedFor) {
  const RoutingShape shape{.layers = {LayerId(0)}, .top_k = 2, .experts = 8};
  const RoutingTrace trace = SyntheticTrace(shape, 10, 3);
  ASSERT_EQ(trace.sequences.size(), 3u);
  EXPECT_EQ(trace.sequences[2].first, 20u);
  EXPECT_EQ(trace.tokens(), 30u);
  EXPECT_EQ(trace.replayed_tokens(), 30u);
}

}  // namespace
}  // namespace moed
