#include "core/model/processor_experts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "core/base/clock.h"
#include "core/base/status.h"

namespace moed {
namespace {

// The device's step as the processor sees it: the same tokens and choices, rows of its own.
Step OfProcessor(const Step& step, ComputeBackend& processor) {
  Scratch scratch = step.scratch;
  const ProcessorRows& rows = scratch.of_processor;
  scratch.slots = rows.slots;
  scratch.input_storage = rows.input_storage;
  scratch.gate = rows.gate;
  scratch.up = rows.up;
  scratch.gathered_storage = rows.gathered_storage;
  scratch.inner_storage = rows.inner_storage;
  return {step.spec, processor, step.kv, step.trace, step.expert_formats, step.expert_inputs, scratch};
}

}  // namespace

ProcessorExperts::ProcessorExperts(Step& step, ComputeBackend& processor)
    : step_(step), own_(OfProcessor(step, processor)), block_(own_) {
  places_.reserve(kGroupRows);
}

void ProcessorExperts::BeginLayer() {
  MOED_CHECK(places_.empty());
  own_.batch = step_.batch;
  input_ = {};
}

void ProcessorExperts::Add(ReadyExpert ready) {
  awaits_reads_ |= !ready.handle.Has(ExpertPart::kDown);
  places_.push_back(block_.SlotsOf(ready.expert));
  block_.Add(std::move(ready));
}

void ProcessorExperts::Release() {
  block_.Release();
  places_.clear();
}

void ProcessorExperts::Compute(LayerId layer, ExpertProvider& provider) {
  const int64_t begin = Clock::Real().NowNanos();
  if (input_.tokens == 0) {
    input_ = own_.backend.Prepare(own_.scratch.normed_on_host.data(), own_.batch.rows(), own_.spec.hidden, own_.spec.hidden,
                                  own_.expert_inputs, own_.scratch.input_storage);
  }
  const uint64_t bytes = block_.ComputeGroup(layer, input_);
  int tokens = 0;
  for (const std::span<const int32_t> places : places_) tokens = std::max(tokens, static_cast<int>(places.size()));
  if (!std::exchange(awaits_reads_, false)) {
    provider.OnProcessorComputed(bytes, tokens, SecondsBetween(begin, Clock::Real().NowNanos()));
  }
  CopyOutputs();
  places_.clear();
}

// Rows of experts that could not be read as well: their tokens leave the step.
void ProcessorExperts::CopyOutputs() {
  const size_t hidden = own_.spec.hidden;
  for (const std::span<const int32_t> places : places_) {
    const size_t first = (places.data() - own_.scratch.expert_slots.data()) * hidden;
    step_.backend.memory().Copy(&step_.scratch.slots[first], &own_.scratch.slots[first], places.size() * hidden * sizeof(float));
  }
}

absl::StatusOr<double> MeasureBringing(ComputeBackend& backend) {
  constexpr size_t kBytes = 4 << 20;
  constexpr int kTimes = 3;
  MOED_ASSIGN_OR_RETURN(const Buffer from, backend.memory().shared().Allocate(kBytes));
  MOED_ASSIGN_OR_RETURN(const Buffer to, backend.memory().working().Allocate(kBytes));
  double least = std::numeric_limits<double>::infinity();
  for (int time = 0; time < kTimes; ++time) {
    const int64_t begin = Clock::Real().NowNanos();
    backend.memory().Copy(to.data(), from.data(), kBytes);
    MOED_RETURN_IF_ERROR(backend.Fence());
    least = std::min(least, SecondsBetween(begin, Clock::Real().NowNanos()));
  }
  return std::max(least, 1e-9) / kBytes;
}

}  // namespace moed
