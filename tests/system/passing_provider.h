// Stands before a provider and passes everything on; tests override what they look at.
#pragma once

#include <optional>
#include <span>

#include "core/expert/provider.h"

namespace moed::testing {

class PassingProvider : public ExpertProvider {
 public:
  explicit PassingProvider(ExpertProvider& next) : next_(next) {}
  void OnSequenceStart(SequenceId s) override { next_.OnSequenceStart(s); }
  void OnSequenceEnd(SequenceId s) override { next_.OnSequenceEnd(s); }
  void OnSequencePause(SequenceId s) override { next_.OnSequencePause(s); }
  void OnToken(SequenceId s, TokenId t) override { next_.OnToken(s, t); }
  void OnGateInput(SequenceId s, LayerId l, std::span<const float> h) override { next_.OnGateInput(s, l, h); }
  void OnTokenGateInput(SequenceId s, LayerId l, std::span<const float> h) override { next_.OnTokenGateInput(s, l, h); }
  bool WantsPreview() override { return next_.WantsPreview(); }
  void OnGatePreview(SequenceId s, LayerId l, std::span<const float> h) override { next_.OnGatePreview(s, l, h); }
  void OnPreviewed() override { next_.OnPreviewed(); }
  bool masks_router() const override { return next_.masks_router(); }
  void MaskRouter(LayerId l, std::span<const float> hidden, std::span<float> logits, TokenRouting& token) override {
    next_.MaskRouter(l, hidden, logits, token);
  }
  ActivationLender* lender() override { return next_.lender(); }
  void Begin(const LayerRouting& routing) override { next_.Begin(routing); }
  std::optional<ReadyExpert> Next() override { return next_.Next(); }
  std::optional<ReadyExpert> NextReady() override { return next_.NextReady(); }
  SequenceCounters sequence_counters(SequenceId s) const override { return next_.sequence_counters(s); }

 private:
  ExpertProvider& next_;
};

}  // namespace moed::testing
