// Error feedback of one layer's experts, for the quantizer gptq.
#pragma once

#include <optional>
#include <vector>

#include "core/base/executor.h"
#include "core/quant/error_feedback.h"
#include "tools/pack/moments.h"
#include "tools/pack/plan.h"

namespace moed {

// Whether an expert's format is made by it at some precision.
bool NeedsMoments(const PackEncodings& encodings);

class LayerFeedback {
 public:
  // `moments`: null where nothing needs them; then there is no feedback.
  LayerFeedback(const PackPlan& plan, const ExpertMoments* moments, size_t moe_layer, Executor& executor);
  const ErrorFeedback* Of(int expert, ExpertPart part) const;

 private:
  std::optional<ErrorFeedback> inputs_;
  std::vector<std::optional<ErrorFeedback>> inner_;  // by expert
};

}  // namespace moed
