#include "bench/replay/belady.h"

#include "tests/replay/trace_files.h"

namespace moed {
namespace {

// One layer, top-1 of 4: A B C A B D A, by hand.
TEST(Belady, TheOneNeededLastLeaves) {
  const RoutingShape shape{.layers = {LayerId(0)}, .top_k = 1, .experts = 4};
  const RoutingTrace trace = MakeTrace(shape, {{0}, {1}, {2}, {0}, {1}, {3}, {0}});
  const RoutingTrace* const traces[] = {&trace};
  const auto policy = MakeBeladyPolicy(traces);
  const auto key = [](int32_t expert) { return CachedKey{LayerId(0), expert}; };
  const auto any = [](CachedKey) { return true; };
  for (const int32_t expert : {0, 1}) {
    policy->OnAccess(key(expert), {});
    policy->OnInsert(key(expert), 1);
  }
  policy->OnAccess(key(2), {});  // A comes next, B after it
  const Incoming incoming{key(2), 1, LoadReason::kDemand, LayerId(0)};
  EXPECT_EQ(policy->Victim(incoming, any), key(1));
  EXPECT_EQ(policy->Victim(incoming, [&](CachedKey k) { return k == key(0); }), key(0));
  EXPECT_EQ(policy->Victim(incoming, [](CachedKey) { return false; }), std::nullopt);
  policy->OnEvict(key(1));
  policy->OnInsert(key(2), 1);
  policy->OnAccess(key(0), {});
  policy->OnAccess(key(1), {});
  EXPECT_EQ(policy->Victim(incoming, any), key(2));  // never again, while A is the last one
}

// Two sequences in lockstep, A B C and A A: {A, A}, {B, A}, {C}.
TEST(Belady, SequencesShareSteps) {
  const RoutingShape shape{.layers = {LayerId(0)}, .top_k = 1, .experts = 4};
  RoutingTrace trace = MakeTrace(shape, {{0}, {1}, {2}, {0}, {0}});
  trace.sequences = {{0, 3, ""}, {3, 2, ""}};
  const RoutingTrace* const traces[] = {&trace};
  const auto policy = MakeBeladyPolicy(traces, 2);
  const auto key = [](int32_t expert) { return CachedKey{LayerId(0), expert}; };
  const Incoming incoming{key(3), 1, LoadReason::kDemand, LayerId(0)};
  for (const int32_t expert : {0, 1, 2}) policy->OnInsert(key(expert), 1);
  const auto leaves = [&] { return policy->Victim(incoming, [&](CachedKey k) { return k != key(1); }); };
  for (const int32_t expert : {0, 0}) policy->OnAccess(key(expert), {});
  EXPECT_EQ(leaves(), key(2));
  for (const int32_t expert : {1, 0}) policy->OnAccess(key(expert), {});
  EXPECT_EQ(leaves(), key(0));  // not used a third time
}

}  // namespace
}  // namespace moed
