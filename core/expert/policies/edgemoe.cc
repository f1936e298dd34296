#include "core/expert/policies/edgemoe.h"

#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/expert/expert_index.h"
#include "core/expert/resident_set.h"

namespace moed {
namespace {

using DistanceFn = int (*)(const ExpertIndex& index, LayerId current, LayerId layer);

// L = -f / d, the highest leaves. f: uses of the expert at any precision by all sequences since the start, as the paper's comes
// from a profile of the model and not of a sequence. An expert nobody used has f = 0 and leaves first, as the paper has it for
// what will not be used again. Of equal f / d the farther layer leaves, then the one unused for longest.
class EdgeMoePolicy final : public EvictionPolicy {
 public:
  EdgeMoePolicy(const ExpertModelShape& context, DistanceFn distance)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions),
        places_(index_.Places()),
        distance_(distance),
        uses_(index_.size() / index_.precisions()),
        distances_(index_.layers()),
        residents_(index_.size()) {}

  void OnAccess(CachedKey key, const AccessContext&) override {
    const size_t i = index_.Of(key);
    ++uses_[i / index_.precisions()];
    residents_.Touch(i);
  }
  void OnInsert(CachedKey key, uint64_t) override { residents_.Insert(index_.Of(key)); }
  void OnEvict(CachedKey key) override { residents_.Remove(index_.Of(key)); }
  std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) override {
    for (int position = 0; position < index_.layers(); ++position) {
      distances_[position] = distance_(index_, incoming.current_layer, index_.Layer(position));
    }
    const auto score = [this](uint32_t i) {
      const auto [expert, layer] = places_[i];
      return std::pair(static_cast<double>(uses_[expert]) / distances_[layer], -distances_[layer]);
    };
    return index_.KeyIfAny(residents_.LeastOf(score, [&](size_t i) { return evictable(index_.KeyAt(i)); }));
  }

 private:
  const ExpertIndex index_;
  const std::vector<ExpertIndex::Place> places_;
  const DistanceFn distance_;
  std::vector<uint64_t> uses_;  // by expert
  std::vector<int> distances_;  // by layer, while a victim is looked for
  ResidentSet residents_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeEdgeMoePolicy(const ExpertModelShape& context) {
  return std::make_unique<EdgeMoePolicy>(
      context, [](const ExpertIndex& index, LayerId current, LayerId layer) { return index.Distance(current, layer); });
}

std::unique_ptr<EvictionPolicy> MakeEdgeMoePrintedPolicy(const ExpertModelShape& context) {
  return std::make_unique<EdgeMoePolicy>(
      context, [](const ExpertIndex& index, LayerId current, LayerId layer) { return index.Distance(layer, current); });
}

}  // namespace moed
