#include "core/expert/fidelity/swapmoe.h"

#include <limits>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/expert/swapmoe/options.h"

namespace moed {
namespace {

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

}  // namespace

std::unique_ptr<RouterMask> MakeSwapMoeMask(std::shared_ptr<SwapMoeExperts> experts, int experts_per_layer) {
  return std::make_unique<SwapMoeMask>(std::move(experts), experts_per_layer);
}

absl::StatusOr<std::unique_ptr<RouterMask>> MakeSwapMoeMask(const PartContext& context, const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(std::shared_ptr<SwapMoeExperts> experts, SharedSwapMoeExperts(context, options));
  return MakeSwapMoeMask(std::move(experts), context.model.experts_per_layer);
}

PartMemory SwapMoeMaskMemory(const PartContext& context, const PartOptions&) {
  return {.fixed_bytes = SwapMoeExperts::Bytes(context.model) + static_cast<size_t>(context.model.experts_per_layer)};
}

}  // namespace moed
