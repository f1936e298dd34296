#include "tools/plan/gate_recall.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/expert/predictors/gate_guesses.h"
#include "core/expert/top_experts.h"

namespace moed {

GateRecall::GateRecall(const ExpertIndex& experts, int top_k, GateFn gate)
    : index_(experts),
      experts_(static_cast<size_t>(experts.experts_per_layer())),
      top_k_(std::min(static_cast<size_t>(top_k), experts_)),
      gate_(std::move(gate)),
      layers_(static_cast<size_t>(experts.layers())),
      probabilities_(experts_),
      ordered_(experts_),
      order_(experts_) {}

void GateRecall::Observe(LayerId layer, const TokenRouting&, std::span<const float> hidden, std::span<const float> logits) {
  const int position = index_.Position(layer);
  if (position != position_) {
    MOED_CHECK(position == 0 || position == position_ + 1);
    std::swap(foreseen_, foreseeing_);
    foreseeing_.clear();
    position_ = position;
    row_ = 0;
  }
  if (position > 0) Compare(logits);
  if (position + 1 < index_.layers()) Foresee(index_.Layer(position + 1), hidden);
  ++row_;
}

void GateRecall::Compare(std::span<const float> logits) {
  const auto foreseen = std::span<const uint8_t>(foreseen_).subspan(row_ * experts_, experts_);
  Counts& counts = layers_[static_cast<size_t>(position_)];
  counts.chosen += top_k_;
  for (const int32_t expert : TopExperts(logits, top_k_, order_)) {
    const uint8_t how = foreseen[static_cast<size_t>(expert)];
    counts.widened += (how & kWidened) != 0;
    counts.top_k += (how & kTopK) != 0;
  }
}

void GateRecall::Foresee(LayerId next, std::span<const float> hidden) {
  gate_(next, hidden, probabilities_);
  std::ranges::copy(probabilities_, ordered_.begin());
  const float threshold = UpperQuartile(ordered_);
  const size_t first = foreseeing_.size();
  for (const float probability : probabilities_) foreseeing_.push_back(probability > threshold ? kWidened : uint8_t{0});
  for (const int32_t expert : TopExperts(probabilities_, top_k_, order_))
    foreseeing_[first + static_cast<size_t>(expert)] |= kTopK;
}

}  // namespace moed
