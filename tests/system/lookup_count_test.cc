// The lookup counters against an independent count from the recorded routing of the same requests.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/expert/predictors/table.h"
#include "tests/system/demo_rig.h"
#include "tests/system/passing_provider.h"

namespace moed::testing {
namespace {

// Keeps, for each layer step, the distinct experts and the phase.
class RoutingRecorder final : public PassingProvider {
 public:
  using PassingProvider::PassingProvider;
  void Begin(const LayerRouting& routing) override {
    std::map<int, Phase> wanted;
    for (const TokenRouting& token : routing.tokens) {
      for (const ExpertChoice& choice : token.choices) {
        auto [at, added] = wanted.emplace(choice.expert, token.phase);
        if (!added && token.phase == Phase::kDecode) at->second = Phase::kDecode;
      }
    }
    for (const auto& [expert, phase] : wanted) ++counts[{routing.layer, phase}];
    PassingProvider::Begin(routing);
  }

  std::map<std::pair<LayerId, Phase>, uint64_t> counts;
};

TEST(LookupCounters, EqualTheRecordedRouting) {
  for (const PredictorRow& predictor : Predictors()) {
    if (!predictor.mask.empty()) continue;  // only with its mask
    RigOptions options;
    options.slots = 40;
    options.predictor = predictor.name;
    Rig rig(options);
    RoutingRecorder recorder(rig.provider());
    rig.recorder = &recorder;
    rig.GreedyTogether({Tokens({0, 5, 9, 1300, 77}), Tokens({0, 2000, 2001}), Tokens({0, 31})}, 12, 4);
    const ExpertStats stats = rig.provider().Stats();
    uint64_t hits = 0;
    for (const LayerStats& layer : stats.layers) {
      for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
        const auto& by_result = layer.lookups[static_cast<size_t>(phase)];
        EXPECT_EQ(by_result[0] + by_result[1] + by_result[2], (recorder.counts[{layer.layer, phase}]))
            << predictor.name << ", layer " << layer.layer.value();
        hits += by_result[static_cast<size_t>(LookupResult::kHit)];
      }
    }
    EXPECT_GT(hits, 0u) << predictor.name;
  }
}

}  // namespace
}  // namespace moed::testing
