// A provider that learns nothing and masks nothing: what tests that hand out experts need not say.
#pragma once

#include "core/expert/provider.h"

namespace moed {

class PlainProvider : public ExpertProvider {
 public:
  void OnSequenceStart(SequenceId) override {}
  void OnSequenceEnd(SequenceId) override {}
  void OnToken(SequenceId, TokenId) override {}
  void OnGateInput(SequenceId, LayerId, std::span<const float>) override {}
  void OnTokenGateInput(SequenceId, LayerId, std::span<const float>) override {}
  bool masks_router() const override { return false; }
  void MaskRouter(LayerId, std::span<const float>, std::span<float>, TokenRouting&) override {}
  std::optional<ReadyExpert> NextReady() override { return Next(); }
  SequenceCounters sequence_counters(SequenceId) const override { return {}; }
};

}  // namespace moed
