#include "core/expert/policies/edgemoe.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/expert/expert_index.h"
#include "core/expert/learning/paths_option.h"
#include "core/expert/resident_set.h"

namespace moed {
namespace {

enum class Formula : uint8_t { kProse, kPrinted };  // what d is: layers until it runs, or since

// L = -f / d, the highest leaves. f: uses of the expert at any precision, in the profile (the paper's; the dictionary that
// preloading goes by) and by all sequences since the start. What the dictionary has preloaded was used in it, so it does not
// leave as one that nobody uses (f = 0) does. Of equal f / d the farther layer leaves, then the one unused for longest.
// An encoder's experts keep f = 0, since a request runs them once, and S is the number of the decoder's layers.
class EdgeMoePolicy final : public EvictionPolicy {
 public:
  // `profile` may be null.
  EdgeMoePolicy(const ExpertModelShape& context, Formula formula, const ActivationPaths* profile)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions, context.encoder_positions()),
        places_(index_.Places()),
        formula_(formula),
        uses_(index_.size() / index_.precisions()),
        distances_(index_.layers()),
        residents_(index_.size()) {
    if (profile == nullptr) return;
    for (int position = index_.encoder_positions(); position < index_.layers(); ++position) {
      std::ranges::copy(profile->Frequency(position),
                        uses_.begin() + static_cast<std::ptrdiff_t>(position) * context.experts_per_layer);
    }
  }

  void OnAccess(CachedKey key, const AccessContext&) override {
    const size_t i = index_.Of(key);
    if (index_.Position(key.layer) >= index_.encoder_positions()) ++uses_[i / index_.precisions()];
    residents_.Touch(i);
  }
  void OnInsert(CachedKey key, uint64_t) override { residents_.Insert(index_.Of(key)); }
  void OnEvict(CachedKey key) override { residents_.Remove(index_.Of(key)); }
  std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) override {
    const int current = index_.Position(incoming.current_layer);
    for (int position = 0; position < index_.layers(); ++position) {
      distances_[position] =
          formula_ == Formula::kProse ? index_.Distance(current, position) : index_.Distance(position, current);
    }
    const auto score = [this](uint32_t i) {
      const auto [expert, layer] = places_[i];
      return std::pair(static_cast<double>(uses_[expert]) / distances_[layer], -distances_[layer]);
    };
    return index_.KeyIfAny(residents_.LeastOf(score, [&](size_t i) { return evictable(index_.KeyAt(i)); }));
  }
  // The buffer begins with the encoder's experts (III-C2).
  void Popularity(LayerId layer, std::span<float> of_experts) const override {
    if (index_.Position(layer) < index_.encoder_positions()) {
      std::ranges::fill(of_experts, std::numeric_limits<float>::max());
    }
  }

 private:
  const ExpertIndex index_;
  const std::vector<ExpertIndex::Place> places_;
  const Formula formula_;
  std::vector<uint64_t> uses_;  // by expert
  std::vector<int> distances_;  // by layer, while a victim is looked for
  ResidentSet residents_;
};

absl::StatusOr<std::unique_ptr<EvictionPolicy>> Make(const PartContext& context, const PartOptions& options, Formula formula) {
  MOED_ASSIGN_OR_RETURN(const std::shared_ptr<const ActivationPaths> profile, GivenPaths(context.model, options));
  return std::make_unique<EdgeMoePolicy>(context.model, formula, profile.get());
}

}  // namespace

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeEdgeMoePolicy(const PartContext& context, const PartOptions& options) {
  return Make(context, options, Formula::kProse);
}

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeEdgeMoePrintedPolicy(const PartContext& context, const PartOptions& options) {
  return Make(context, options, Formula::kPrinted);
}

}  // namespace moed
