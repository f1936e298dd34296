#include "core/model/whole_step.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "core/model/model.h"

namespace moed {

void WholeStep::Begin(ExpertProvider& provider) {
  table_ = {};
  if (!step_.backend.gains_by_whole_steps()) return;
  provider.OnStep(WayOf(provider));
  if (!runs()) return;
  step_.backend.BeginWholeStep();
  choices_ = step_.scratch.choices;
  std::iota(step_.scratch.slot_places.begin(), step_.scratch.slot_places.begin() + slots(), 0);
}

StepWay WholeStep::WayOf(ExpertProvider& provider) {
  const auto exact = [](const BatchChunk& part) { return part.chunk->fidelity.OfExperts().exact(); };
  if (step_.spec.encoder || step_.spec.prefix) return StepWay::kOfItsModel;
  if (slots() > kGroupRows) return StepWay::kManyRows;
  if (!std::ranges::all_of(step_.batch.chunks(), exact)) return StepWay::kNotExact;
  if (provider.masks_router()) return StepWay::kMasked;
  if (step_.watcher != nullptr && step_.watcher->needs_layers()) return StepWay::kWatched;
  table_ = provider.WhereAllLie();
  return runs() ? StepWay::kWhole : StepWay::kNotAllThere;
}

void WholeStep::BeginLayer(LayerId layer) { step_.scratch.choices = ChoicesOf(PositionOf(layer)); }

size_t WholeStep::PositionOf(LayerId layer) const {
  return static_cast<size_t>(std::ranges::lower_bound(layers_, layer) - layers_.begin());
}

ExpertTable WholeStep::MatricesOf(LayerId layer, ExpertPart part) const {
  const auto experts = static_cast<size_t>(step_.spec.experts);
  return table_.subspan((PositionOf(layer) * kExpertParts + static_cast<size_t>(part)) * experts, experts);
}

MatMulJob WholeStep::JobOf(LayerId layer, ExpertPart part, int slot, const Activations& input, float* output,
                           const float* bias) const {
  const bool down = part == ExpertPart::kDown;
  const int hidden = step_.spec.hidden, ffn = step_.spec.expert_ffn;
  const int rows = down ? hidden : ffn;
  return {.weights = {step_.expert_formats.Of(layer, kReferencePrecision, part), rows, down ? ffn : hidden},
          .input = &input,
          .output = output + int64_t{slot} * rows,
          .output_stride = rows,
          .bias = bias,
          .choice = &step_.scratch.choices[static_cast<size_t>(slot)],
          .matrices = MatricesOf(layer, part)};
}

void WholeStep::ComputeExperts(LayerId layer, const ExpertBiases& biases, const Activations& input) {
  const TraceSpan span(step_.trace, "expert", kComputeTrack, layer);
  const Scratch& scratch = step_.scratch;
  std::array<Activations, kGroupRows> inputs;
  std::array<MatMulJob, 2 * kGroupRows> jobs;
  size_t used = 0;
  for (int slot = 0; slot < slots(); ++slot) {
    Activations& own = inputs[static_cast<size_t>(slot)] = input.Rows(slot / step_.spec.top_k, 1);
    if (step_.spec.gated()) jobs[used++] = JobOf(layer, ExpertPart::kGate, slot, own, scratch.gate.data(), biases.gate);
    jobs[used++] = JobOf(layer, ExpertPart::kUp, slot, own, scratch.up.data(), biases.up);
  }
  step_.backend.MatMul(std::span(jobs).first(used));
  const FormatId format = step_.expert_formats.Of(layer, kReferencePrecision, ExpertPart::kDown);
  const Activations inner = step_.PrepareInner(slots(), step_.spec.expert_ffn, InputForms::Of({format}));
  for (int slot = 0; slot < slots(); ++slot) {
    Activations& own = inputs[static_cast<size_t>(slot)] = inner.Rows(slot, 1);
    jobs[static_cast<size_t>(slot)] = JobOf(layer, ExpertPart::kDown, slot, own, scratch.slots.data(), biases.down);
  }
  step_.backend.MatMul(std::span(jobs).first(static_cast<size_t>(slots())));
}

void WholeStep::End(ExpertProvider& provider, const absl::Status& done) {
  if (!runs()) return;
  table_ = {};
  step_.scratch.choices = choices_;
  if (!done.ok()) return;
  for (size_t position = 0; position < layers_.size(); ++position) TellLayer(position, provider);
}

void WholeStep::TellLayer(size_t position, ExpertProvider& provider) {
  const auto rows = static_cast<size_t>(step_.batch.rows()), top_k = static_cast<size_t>(step_.spec.top_k);
  for (size_t row = 0; row < rows; ++row) {
    const SequenceChunk& chunk = *step_.batch.chunk_of(static_cast<int>(row)).chunk;
    step_.scratch.routing[row] = {.sequence = chunk.sequence,
                                  .token = step_.batch.tokens()[row],
                                  .phase = chunk.phase,
                                  .choices = ChoicesOf(position).subspan(row * top_k, top_k),
                                  .fidelity = chunk.fidelity.OfExperts(),
                                  .before = step_.batch.before(static_cast<int>(row))};
  }
  provider.OnComputed({layers_[position], step_.scratch.routing.first(rows)});
}

}  // namespace moed
