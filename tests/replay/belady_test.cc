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

}  // namespace
}  // namespace moed
