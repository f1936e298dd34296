#include "core/expert/cache/fill_order.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace moed {
namespace {

struct Candidate {
  CachedKey key;
  std::pair<float, float> popularity;  // to the policy, to the predictor
};

}  // namespace

std::vector<CachedKey> FillOrder(const PresetSetup& setup, const PresetParts& parts, const ExpertModelShape& model) {
  if (!setup.fill) return {};
  const auto experts = static_cast<size_t>(model.experts_per_layer);
  std::vector<Candidate> candidates(model.moe_layers.size() * experts);
  std::vector<float> to_policy(experts);
  std::vector<float> to_predictor(experts);
  for (size_t position = 0; position < model.moe_layers.size(); ++position) {
    const LayerId layer = model.moe_layers[position];
    std::ranges::fill(to_policy, 0.f);
    std::ranges::fill(to_predictor, 0.f);
    parts.policy->Popularity(layer, to_policy);
    parts.predictor->Popularity(layer, to_predictor);
    for (size_t e = 0; e < experts; ++e) {
      const ExpertKey expert{layer, static_cast<int32_t>(e)};
      const Precision precision =
          setup.fidelity.exact() ? kReferencePrecision : parts.rule->PrefetchPrecision(expert, kReferencePrecision);
      candidates[e * model.moe_layers.size() + position] = {{layer, expert.expert, precision}, {to_policy[e], to_predictor[e]}};
    }
  }
  std::ranges::stable_sort(candidates, [](const Candidate& a, const Candidate& b) { return a.popularity > b.popularity; });
  std::vector<CachedKey> order;
  order.reserve(candidates.size());
  for (const Candidate& candidate : candidates) order.push_back(candidate.key);
  return order;
}

}  // namespace moed
