// Experts in the host's memory, computed by its processor while a device with memory of its own computes others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/expert/provider.h"
#include "core/model/expert_block.h"
#include "core/model/step.h"

namespace moed {

// An expert block on another backend, for models where Model::LetsProcessorCompute and steps of up to
// kMostTokensOfProcessor tokens: the device's step tells what the router chose, what comes out is copied to where the
// device's experts put theirs. The processor's backend gives the device's bits.
class ProcessorExperts {
 public:
  // All outlive this. `processor` computes in the host's memory.
  ProcessorExperts(Step& step, ComputeBackend& processor);

  // A layer's experts follow; the Fence of its router was after everything that was copied.
  void BeginLayer();
  bool Fits(const ReadyExpert& ready) const { return block_.Fits(ready); }
  bool any() const { return !places_.empty(); }
  void Add(ReadyExpert ready);
  // Of those that were added and not computed.
  void Release();
  // Of all that were added. Waits for what is still read of them.
  void Compute(LayerId layer, ExpertProvider& provider);

 private:
  void CopyOutputs();

  Step& step_;
  Step own_;
  ExpertBlock block_;
  Activations input_;                             // of all rows; prepared when the first expert of a layer needs it
  bool awaits_reads_ = false;                     // some of the experts that were added are not read whole: no measure of time
  std::vector<std::span<const int32_t>> places_;  // of the experts that were added, in scratch.expert_slots
};

// Seconds a byte from the host's memory to the backend's own, which is another one, measured.
absl::StatusOr<double> MeasureBringing(ComputeBackend& backend);

}  // namespace moed
