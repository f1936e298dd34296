#include "core/expert/swapmoe/parts.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/expert/swapmoe/slots.h"

namespace moed {
namespace {

constexpr size_t kLoadsAtOnce = 1;   // a demand of an exact request waits behind one
constexpr size_t kLoadsALayer = 16;  // that may begin, one after the other, before the next layer says again what is due
constexpr float kMasked = -std::numeric_limits<float>::infinity();

class SwapMoeMask final : public RouterMask {
 public:
  SwapMoeMask(std::shared_ptr<SwapMoeExperts> experts, int experts_per_layer)
      : experts_(std::move(experts)), usable_(static_cast<size_t>(experts_per_layer)) {}

  void Observe(LayerId layer, const TokenRouting& token, std::span<const float> hidden, std::span<const float> logits) override {
    experts_->OnToken(layer, token.phase, hidden, logits);
  }
  void Apply(LayerId layer, const TokenRouting& token, const ResidencyView& residents, std::span<float> logits) override {
    const auto resident = [&](int32_t expert) { return residents.Resident({layer, expert, kReferencePrecision}); };
    experts_->Usable(layer, token.phase, resident, usable_);
    for (size_t e = 0; e < logits.size(); ++e) {
      if (!usable_[e]) logits[e] = kMasked;
    }
  }
  size_t memory_bytes() const override { return experts_->memory_bytes() + usable_.size(); }

 private:
  const std::shared_ptr<SwapMoeExperts> experts_;
  std::vector<uint8_t> usable_;  // (experts)
};

// Foresees nothing: its guesses are the loads that are due.
class SwapMoePredictor final : public ExpertPredictor {
 public:
  explicit SwapMoePredictor(std::shared_ptr<SwapMoeExperts> experts) : experts_(std::move(experts)) {}

  void OnRouted(const LayerRouting& routing) override {
    experts_->OnRouted(routing.layer);
    told_ = false;
  }
  void Predict(SequenceId, LayerId from, std::vector<Guess>& best_first) override {
    if (std::exchange(told_, true)) return;  // another sequence of the step asks
    experts_->Due(from, kLoadsALayer, best_first);
  }
  std::optional<PrefetchBudget> Budget(const ReadingPace&) const override {
    return PrefetchBudget{.max_loads = kLoadsALayer, .max_loading = kLoadsAtOnce, .when_idle = true};
  }

 private:
  const std::shared_ptr<SwapMoeExperts> experts_;
  bool told_ = false;
};

class SwapMoePolicy final : public EvictionPolicy {
 public:
  explicit SwapMoePolicy(std::shared_ptr<SwapMoeExperts> experts) : experts_(std::move(experts)) {}

  void OnAccess(CachedKey key, const AccessContext&) override { experts_->OnAccess(key); }
  void OnInsert(CachedKey key, uint64_t) override { experts_->OnInsert(key); }
  void OnEvict(CachedKey key) override { experts_->OnEvict(key); }
  std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) override {
    return experts_->Victim(incoming, evictable);
  }

 private:
  const std::shared_ptr<SwapMoeExperts> experts_;
};

enum class SlotsFrom : uint8_t { kPlan, kEqual };

// Slots: the file's, where there is one and they are asked for; else equal ones.
absl::Status SetSlots(const PresetSetup& setup, const PresetContext& context, SlotsFrom from, SwapMoeOptions& swap) {
  const ExpertModelShape& model = context.predictor.model;
  const auto layers = static_cast<int>(model.moe_layers.size());
  const int experts = model.experts_per_layer;
  // Nothing is known of the cache where tables are measured.
  const bool measuring = model.capacity_bytes == 0 || model.record_bytes.empty();
  const uint64_t record_bytes = measuring ? 1 : model.record_bytes[kReferencePrecision];
  const uint64_t records = measuring ? std::numeric_limits<uint32_t>::max() : model.capacity_bytes / record_bytes;
  swap.norms = *setup.norms;
  const SlotsPlan* plan = setup.files.slots.get();
  if (plan == nullptr || from == SlotsFrom::kEqual) {
    MOED_ASSIGN_OR_RETURN(swap.slots, EqualSlots(layers, experts, records));
    return absl::OkStatus();
  }
  swap.slots = plan->slots;
  return CheckSlotsFit(swap.slots, records, record_bytes);
}

absl::Status SetUpdates(const PresetSetup& setup, SwapMoeOptions& swap) {
  double values[std::size(kSwapMoeOptions)] = {};
  for (size_t i = 1; i < std::size(kSwapMoeOptions); ++i) {
    MOED_ASSIGN_OR_RETURN(values[i], setup.options.Number(kSwapMoeOptions[i]));
  }
  swap.frequency = {.window = static_cast<int>(values[1]),
                    .growth = values[2],
                    .tolerance = values[3],
                    .least_window = static_cast<int>(values[4]),
                    .judged_steps = static_cast<int>(values[5])};
  swap.fade = values[6];
  return absl::OkStatus();
}

absl::StatusOr<PresetParts> MakeUpdating(const PresetSetup& setup, const PresetContext& context, SlotsFrom from,
                                         SwapMoeScore score) {
  SwapMoeOptions swap{.score = score, .clock = &Clock::Real()};
  MOED_RETURN_IF_ERROR(SetSlots(setup, context, from, swap));
  MOED_RETURN_IF_ERROR(SetUpdates(setup, swap));
  const ExpertModelShape& model = context.predictor.model;
  PresetParts parts = MakeSwapParts(model, std::make_shared<SwapMoeExperts>(model, std::move(swap)));
  MOED_ASSIGN_OR_RETURN(parts.rule, MakeFidelityRule("exact", {model, setup.options, nullptr}));
  return parts;
}

}  // namespace

absl::StatusOr<PresetParts> MakeSwapMoe(const PresetSetup& setup, const PresetContext& context) {
  return MakeUpdating(setup, context, SlotsFrom::kPlan, SwapMoeScore::kMagnitude);
}

absl::StatusOr<PresetParts> MakeSwapMoeEqual(const PresetSetup& setup, const PresetContext& context) {
  return MakeUpdating(setup, context, SlotsFrom::kEqual, SwapMoeScore::kMagnitude);
}

absl::StatusOr<PresetParts> MakeSwapMoeTokens(const PresetSetup& setup, const PresetContext& context) {
  return MakeUpdating(setup, context, SlotsFrom::kPlan, SwapMoeScore::kTokens);
}

absl::StatusOr<PresetParts> MakeSwapMoePruning(const PresetSetup& setup, const PresetContext& context) {
  SwapMoeOptions swap{.updates = false, .clock = &Clock::Real()};
  MOED_RETURN_IF_ERROR(SetSlots(setup, context, SlotsFrom::kEqual, swap));
  const ExpertModelShape& model = context.predictor.model;
  PresetParts parts = MakeSwapParts(model, std::make_shared<SwapMoeExperts>(model, std::move(swap)));
  MOED_ASSIGN_OR_RETURN(parts.rule, MakeFidelityRule("exact", {model, setup.options, nullptr}));
  return parts;
}

PresetParts MakeSwapParts(const ExpertModelShape& model, std::shared_ptr<SwapMoeExperts> experts) {
  PresetParts parts;
  parts.mask = std::make_unique<SwapMoeMask>(experts, model.experts_per_layer);
  parts.predictor = std::make_unique<SwapMoePredictor>(experts);
  parts.policy = std::make_unique<SwapMoePolicy>(std::move(experts));
  return parts;
}

}  // namespace moed
