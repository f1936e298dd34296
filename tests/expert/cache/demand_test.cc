#include "core/expert/cache/demand.h"

#include "tests/expert/provider_rig.h"

namespace moed {
namespace demand_test {

TEST(DemandSet, GathersEveryExpertOnce) {
  const SequenceId first(4), second(2);
  Routing routing(LayerId(0));
  routing.Add(first, {5, 1}, Phase::kPrefill);  // .5 .25
  routing.Add(second, {1, 6}, Phase::kDecode);  // .5 .25
  routing.Add(first, {6, 5}, Phase::kPrefill);
  DemandSet wanted(kExperts);
  for (int round = 0; round < 2; ++round) {  // reusable
    wanted.Collect(routing.Get());
    ASSERT_EQ(wanted.experts().size(), 3u);
    EXPECT_EQ(wanted.experts()[0].expert, 5);
    EXPECT_EQ(wanted.experts()[1].expert, 1);
    EXPECT_EQ(wanted.experts()[2].expert, 6);
    EXPECT_FLOAT_EQ(wanted.experts()[0].share, 2 / 3.f);  // of .75
    EXPECT_FLOAT_EQ(wanted.experts()[1].share, 2 / 3.f);
    EXPECT_EQ(wanted.experts()[1].tokens, 2);
    EXPECT_EQ(wanted.positions()[6], 2);
    EXPECT_EQ(wanted.positions()[0], -1);
    EXPECT_FLOAT_EQ(wanted.experts()[1].mass_before, 0);
    EXPECT_FLOAT_EQ(wanted.experts()[2].mass_before, 0);

    ASSERT_EQ(wanted.UsesOf(0).size(), 1u);
    EXPECT_EQ(wanted.UsesOf(0)[0].sequence, first);
    EXPECT_FLOAT_EQ(wanted.UsesOf(0)[0].probability, .5f);
    EXPECT_EQ(wanted.UsesOf(0)[0].rank, 0);
    EXPECT_EQ(wanted.UsesOf(0)[0].tokens, 2);
    EXPECT_EQ(wanted.UsesOf(1)[0].tokens, 1);
    ASSERT_EQ(wanted.UsesOf(1).size(), 2u);
    EXPECT_EQ(wanted.UsesOf(1)[0].sequence, second);
    EXPECT_EQ(wanted.UsesOf(1)[1].sequence, first);
    EXPECT_EQ(wanted.UsesOf(1)[1].rank, 1);
    EXPECT_EQ(wanted.UsesOf(2).size(), 2u);
    EXPECT_EQ(wanted.PhaseOf(0), Phase::kPrefill);
    EXPECT_EQ(wanted.PhaseOf(1), Phase::kDecode);
    EXPECT_EQ(wanted.phase(), Phase::kDecode);
    EXPECT_THAT(wanted.sequences(), testing::ElementsAre(first, second));
  }
}

TEST(DemandSet, AnEmptyStepWantsNothing) {
  DemandSet wanted(kExperts);
  wanted.Collect({LayerId(0), {}});
  EXPECT_TRUE(wanted.experts().empty());
  EXPECT_TRUE(wanted.sequences().empty());
}

}  // namespace demand_test
}  // namespace moed
