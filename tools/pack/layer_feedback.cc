#include "tools/pack/layer_feedback.h"

#include <algorithm>

namespace moed {

bool NeedsMoments(const PackEncodings& encodings) {
  return std::ranges::any_of(
      encodings.experts, [](const EncodingOrKeep& encoding) { return encoding && encoding->quantizer == QuantizerId::kGptq; });
}

LayerFeedback::LayerFeedback(const PackPlan& plan, const ExpertMoments* moments, size_t moe_layer, Executor& executor) {
  if (moments == nullptr) return;
  inner_.resize(static_cast<size_t>(plan.description.experts_per_layer));
  // The inputs' is the largest: it comes first.
  executor.ParallelFor(plan.description.experts_per_layer + 1, 1, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      if (i == 0) {
        inputs_.emplace(moments->OfInputs(moe_layer));
      } else {
        inner_[i - 1].emplace(moments->OfInner(moe_layer, i - 1));
      }
    }
  });
}

const ErrorFeedback* LayerFeedback::Of(int expert, ExpertPart part) const {
  if (!inputs_) return nullptr;
  return part == ExpertPart::kDown ? &*inner_[static_cast<size_t>(expert)] : &*inputs_;
}

}  // namespace moed
