#include "core/model/ffn_block.h"

#include <algorithm>
#include <numeric>

#include "core/base/status.h"
#include "core/model/expert_groups.h"

namespace moed {

FfnBlock::FfnBlock(Step& step, ComputeBackend* processor) : step_(step), experts_(step), whole_(step) {
  if (processor != nullptr) beside_.emplace(step, *processor);
}

void FfnBlock::RunDense(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "dense", kComputeTrack, layer);
  const InputForms forms = FormsOf(weights.dense);
  step_.ForBlocks([&](RowBlock block) {
    const Activations input =
        NormalizeAndPrepare(weights.ffn_norm, weights.ffn_norm_bias, block, forms, step_.scratch.block_storage);
    const Activations inner = Inner(weights.dense, input);
    step_.ProjectToResidual(weights.dense.down, nullptr, inner, block, weights.ffn_post_norm);
  });
}

void FfnBlock::ChooseWhole(LayerId layer, const LayerWeights& weights) {
  const Scratch& scratch = step_.scratch;
  whole_.BeginLayer(layer);
  routed_ = ComputeRouter(layer, weights);
  step_.backend.Route(RouterOf(step_.spec, weights), scratch.router.data(), step_.batch.rows(), scratch.choices.data());
}

void FfnBlock::RunWhole(LayerId layer, const LayerWeights& weights) {
  const Activations input = PrepareAndShare(layer, weights);
  whole_.ComputeExperts(layer, weights.expert_bias, input);
  Combine(layer, weights);
}

void FfnBlock::ChooseExperts(LayerId layer, const LayerWeights& weights, ExpertProvider& provider) {
  if (whole_.runs()) return ChooseWhole(layer, weights);
  routed_ = ComputeRouter(layer, weights);
  if (const absl::Status routed = Route(layer, weights, provider); !routed.ok()) {
    step_.batch.FailAll(routed);
    return DropFailed();
  }
  GroupSlots(layer);
  provider.Begin({layer, step_.scratch.routing.first(step_.batch.rows())});
}

// Shared expert and experts while the reads that Begin queued are under way.
void FfnBlock::RunExperts(LayerId layer, const LayerWeights& weights, ExpertProvider& provider) {
  if (step_.batch.rows() == 0) return;
  if (whole_.runs()) return RunWhole(layer, weights);
  const Activations input = PrepareAndShare(layer, weights);
  if (step_.spec.prefix) ComputeBypass(layer, weights, input);
  experts_.Run(layer, weights.expert_bias, input, provider, beside_ ? &*beside_ : nullptr);
  if (step_.spec.prefix) PassThroughDropped();
  Combine(layer, weights);
  DropFailed();
}

Activations FfnBlock::NormalizeAndPrepare(const float* norm, const float* bias, RowBlock block, InputForms forms,
                                          std::span<std::byte> storage) {
  if (norm == nullptr) {
    const int hidden = step_.spec.hidden;
    step_.CopyRows(step_.FfnInput(block), block.count, NormedRow(block.begin));
    return step_.backend.Prepare(NormedRow(block.begin), block.count, hidden, hidden, forms, storage);
  }
  return step_.NormalizeAndPrepare(step_.FfnInput(block), norm, bias, block.count, NormedRow(block.begin), forms, storage);
}

InputForms FfnBlock::FormsOf(const FfnWeights& weights) const {
  return InputForms::Of({weights.up.format, (step_.spec.gated() ? weights.gate : weights.up).format});
}

Activations FfnBlock::Inner(const FfnWeights& weights, const Activations& input) {
  Scratch& scratch = step_.scratch;
  const int ffn = weights.up.rows;
  MatMulJob into[] = {{weights.up, &input, scratch.up.data(), ffn}, {weights.gate, &input, scratch.gate.data(), ffn}};
  step_.Multiply(std::span(into).first(step_.spec.gated() ? 2 : 1));
  return step_.PrepareInner(input.tokens, ffn, InputForms::Of({weights.down.format}));
}

Activations FfnBlock::ComputeRouter(LayerId layer, const LayerWeights& weights) {
  Scratch& scratch = step_.scratch;
  const bool gated = step_.spec.shared_gate, own_norm = NormsApart();
  const bool shares = !own_norm && !step_.spec.weighs_inputs && step_.one_block();
  const InputForms forms = InputForms::Of({weights.router.format, (gated ? weights.shared_gate : weights.router).format}) |
                           (shares ? step_.expert_inputs : InputForms{});
  Activations input;
  step_.ForBlocks([&](RowBlock block) {
    const TraceSpan span(step_.trace, "router", kComputeTrack, layer);
    input = NormalizeAndPrepare(own_norm ? weights.router_norm : weights.ffn_norm, weights.ffn_norm_bias, block, forms,
                                scratch.block_storage);
    float* shared_gate = gated ? &scratch.shared_gate[block.begin] : nullptr;
    float* const logits = &scratch.router[static_cast<size_t>(block.begin) * step_.spec.experts];
    const MatMulJob jobs[] = {step_.RouterJob(weights, input, logits), {weights.shared_gate, &input, shared_gate, 1}};
    step_.backend.MatMul(std::span(jobs).first(gated ? 2 : 1));
  });
  return shares ? input.Only(step_.expert_inputs) : Activations{};
}

absl::Status FfnBlock::Route(LayerId layer, const LayerWeights& weights, ExpertProvider& provider) {
  if (provider.masks_router()) return RouteMasked(layer, weights, provider);
  Scratch& scratch = step_.scratch;
  step_.backend.Route(RouterOf(step_.spec, weights), scratch.router.data(), step_.batch.rows(), scratch.choices.data());
  ShowNormed();
  MOED_RETURN_IF_ERROR(step_.Fence());
  CallGateHooks(layer, provider);
  return step_.failure;  // of a look-ahead gate
}

// The choice without the mask first: what it takes away is a share of that.
absl::Status FfnBlock::RouteMasked(LayerId layer, const LayerWeights& weights, ExpertProvider& provider) {
  Scratch& scratch = step_.scratch;
  const int rows = step_.batch.rows();
  const RouterShape shape = RouterOf(step_.spec, weights);
  const std::span<int32_t> all = scratch.slot_places.first(rows);
  std::iota(all.begin(), all.end(), 0);
  step_.backend.GatherRows(scratch.router.data(), step_.spec.experts, all, scratch.masked.data());
  step_.backend.Route(shape, scratch.router.data(), rows, scratch.unmasked_choices.data());
  ShowNormed();
  MOED_RETURN_IF_ERROR(step_.Fence());
  CallGateHooks(layer, provider);
  MaskRouter(layer, provider);
  step_.backend.Route(shape, scratch.masked.data(), rows, scratch.choices.data());
  MOED_RETURN_IF_ERROR(step_.Fence());
  for (int row = 0; row < rows; ++row) UndoWhereMoreIsGone(row);
  return absl::OkStatus();
}

void FfnBlock::ShowNormed() {
  const Scratch& scratch = step_.scratch;
  if (scratch.normed_on_host.data() == scratch.normed.data()) return;
  const size_t floats = static_cast<size_t>(step_.batch.rows()) * step_.spec.hidden;
  step_.backend.memory().Copy(scratch.normed_on_host.data(), scratch.normed.data(), floats * sizeof(float));
}

void FfnBlock::CallGateHooks(LayerId layer, ExpertProvider& provider) {
  Scratch& scratch = step_.scratch;
  const Batch& batch = step_.batch;
  for (const BatchChunk& chunk : batch.chunks()) {
    provider.OnGateInput(chunk.chunk->sequence, layer, NormedOnHost(chunk.last_row()));
  }
  for (int row = 0; row < batch.rows(); ++row) {
    const SequenceChunk& chunk = *batch.chunk_of(row).chunk;
    scratch.routing[row] = {.sequence = chunk.sequence,
                            .token = batch.tokens()[row],
                            .phase = chunk.phase,
                            .fidelity = chunk.fidelity.OfExperts(),
                            .before = batch.before(row)};
    provider.OnTokenGateInput(chunk.sequence, layer, NormedOnHost(row));
  }
}

// Where a device computes it would be one more wait; where the router reads what is there already, it routes next.
void FfnBlock::PreviewGate(LayerId next, const LayerWeights& weights, ExpertProvider& provider) {
  const bool on_processor = &step_.backend.memory() == &BackendMemory::Host();
  if (whole_.runs() || !on_processor || step_.spec.RoutesEarly() || !provider.WantsPreview()) return;
  const Scratch& scratch = step_.scratch;
  const auto hidden = static_cast<size_t>(step_.spec.hidden);
  const float* const norm = step_.spec.NormsAround() ? weights.router_norm : weights.ffn_norm;
  for (const BatchChunk& chunk : step_.batch.chunks()) {
    const std::span<float> row = scratch.x.subspan(static_cast<size_t>(chunk.last_row()) * hidden, hidden);
    std::span<const float> read = row;
    if (norm != nullptr) {
      step_.backend.Normalize({norm, weights.ffn_norm_bias, step_.spec.rms_eps}, row.data(), 1, step_.spec.hidden,
                              scratch.gate_input.data());
      read = scratch.gate_input;
    }
    if (!step_.Fence().ok()) return;
    provider.OnGatePreview(chunk.chunk->sequence, next, read);
  }
  provider.OnPreviewed();
}

void FfnBlock::MaskRouter(LayerId layer, ExpertProvider& provider) {
  Scratch& scratch = step_.scratch;
  const size_t experts = step_.spec.experts;
  const size_t top_k = step_.spec.top_k;
  for (int row = 0; row < step_.batch.rows(); ++row) {
    scratch.routing[row].choices = scratch.unmasked_choices.subspan(row * top_k, top_k);
    provider.MaskRouter(layer, NormedOnHost(row), scratch.masked.subspan(row * experts, experts), scratch.routing[row]);
  }
}

void FfnBlock::UndoWhereMoreIsGone(int row) {
  const size_t top_k = step_.spec.top_k;
  TokenRouting& token = step_.scratch.routing[row];
  const std::span<ExpertChoice> choices = step_.scratch.choices.subspan(row * top_k, top_k);
  const auto gone = [&](const ExpertChoice& unmasked) {
    return std::ranges::none_of(choices, [&](const ExpertChoice& choice) { return choice.expert == unmasked.expert; });
  };
  if (std::ranges::count_if(token.choices, gone) == token.masked) return;
  std::ranges::copy(token.choices, choices.begin());
  token.masked = 0;
  token.masked_share = 0;
}

// In the order of a chunk that begins a sequence, whoever else is in the step. Tokens that follow come one by one: there is
// always room for them.
void FfnBlock::DropBeyondCapacity(int capacity) {
  Scratch& scratch = step_.scratch;
  const std::span<int32_t> taken = scratch.expert_begin.first(static_cast<size_t>(step_.spec.experts));
  for (const BatchChunk& source : step_.batch.chunks()) {
    if (source.chunk->kv->length > 0) continue;
    std::ranges::fill(taken, 0);
    for (int row = source.first_row; row <= source.last_row(); ++row) {
      ExpertChoice& choice = scratch.choices[static_cast<size_t>(row)];  // top_k is 1
      if (++taken[static_cast<size_t>(choice.expert)] <= capacity) continue;
      choice.expert = kNoExpert;
      scratch.routing[static_cast<size_t>(row)].choices = {};
      ++source.chunk->dropped;
    }
  }
}

void FfnBlock::GroupSlots(LayerId layer) {
  Scratch& scratch = step_.scratch;
  const size_t top_k = step_.spec.top_k;
  const size_t slots = step_.batch.rows() * top_k;
  for (int row = 0; row < step_.batch.rows(); ++row) scratch.routing[row].choices = scratch.choices.subspan(row * top_k, top_k);
  if (const auto capacity = step_.spec.ExpertCapacity(layer)) DropBeyondCapacity(*capacity);
  GroupByExpert(scratch.choices.first(slots), scratch.expert_begin, scratch.expert_slots.first(slots));
}

// What is weighed takes the place of what the shared expert reads.
Activations FfnBlock::PrepareAndShare(LayerId layer, const LayerWeights& weights) {
  const bool shared = step_.spec.shared_ffn > 0;
  if (step_.spec.weighs_inputs) {
    if (shared) ComputeShared(layer, weights, {});
    WeighInputs();
    return PrepareExperts(weights);
  }
  const Activations input = PrepareExperts(weights);
  if (shared) ComputeShared(layer, weights, input);
  return input;
}

void FfnBlock::WeighInputs() {
  const int hidden = step_.spec.hidden;
  step_.ForBlocks([&](RowBlock block) {
    const std::span<int32_t> all = step_.scratch.slot_places.first(static_cast<size_t>(block.count));
    std::iota(all.begin(), all.end(), 0);
    float* const weighed = step_.scratch.projected.data();
    step_.backend.Combine({.rows = block.count,
                           .cols = hidden,
                           .top_k = 1,
                           .choices = &step_.scratch.choices[static_cast<size_t>(block.begin)],
                           .places = all,
                           .outputs = NormedRow(block.begin),
                           .x = weighed,
                           .adds = false});
    step_.CopyRows(weighed, block.count, NormedRow(block.begin));
  });
}

Activations FfnBlock::PrepareExperts(const LayerWeights& weights) {
  if (routed_.tokens > 0) return routed_;
  const RowBlock all = {0, step_.batch.rows()};
  const std::span<std::byte> storage = step_.scratch.input_storage;
  if (NormsApart()) return NormalizeAndPrepare(weights.ffn_norm, weights.ffn_norm_bias, all, step_.expert_inputs, storage);
  return step_.backend.Prepare(NormedRow(0), all.count, step_.spec.hidden, step_.spec.hidden, step_.expert_inputs, storage);
}

void FfnBlock::ComputeShared(LayerId layer, const LayerWeights& weights, const Activations& input) {
  const InputForms forms = FormsOf(weights.shared);
  step_.ForBlocks([&](RowBlock block) {
    const TraceSpan span(step_.trace, "shared expert", kComputeTrack, layer);
    float* output = &step_.scratch.shared[static_cast<size_t>(block.begin) * step_.spec.hidden];
    Activations own;
    if (step_.spec.weighs_inputs) {
      const int hidden = step_.spec.hidden;
      own = step_.backend.Prepare(NormedRow(block.begin), block.count, hidden, hidden, forms, step_.scratch.block_storage);
    } else if (!step_.spec.NormsAround()) {
      own = input.Rows(block.begin, block.count);
    } else {
      own = NormalizeAndPrepare(weights.shared_norm, nullptr, block, forms, step_.scratch.block_storage);
    }
    const Activations inner = Inner(weights.shared, own);
    MatMulJob jobs[] = {{weights.shared.down, &inner, output, step_.spec.hidden}};
    step_.Multiply(jobs);
    if (step_.spec.NormsAround()) step_.Normalize(output, weights.shared_post_norm, block.count);
  });
}

// Slot order, whatever the order of arrival was. An expert that was not delivered was skipped by the provider's fidelity rule, or
// its tokens leave the batch: it adds nothing.
void FfnBlock::Combine(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "combine", kComputeTrack, layer);
  if (step_.spec.prefix) return step_.ForBlocks([&](RowBlock block) { CombineWithBypass(weights, block); });
  if (weights.ffn_post_norm != nullptr) return step_.ForBlocks([&](RowBlock block) { CombineNormed(weights, block); });
  Scratch& scratch = step_.scratch;
  const int rows = step_.batch.rows();
  if (step_.spec.weighs_inputs) std::ranges::fill(scratch.unmasked_choices.first(rows), ExpertChoice{.probability = 1});
  step_.backend.Combine({.rows = rows,
                         .cols = step_.spec.hidden,
                         .top_k = step_.spec.top_k,
                         .choices = (step_.spec.weighs_inputs ? scratch.unmasked_choices : scratch.choices).data(),
                         .scale = static_cast<float>(step_.spec.router_scale * step_.spec.residual_scale),
                         .expert_scales = weights.expert_scales,
                         .places = scratch.slot_places.first(static_cast<size_t>(rows) * step_.spec.top_k),
                         .outputs = scratch.slots.data(),
                         .shared = step_.spec.shared_ffn > 0 ? scratch.shared.data() : nullptr,
                         .shared_gate = step_.spec.shared_gate ? scratch.shared_gate.data() : nullptr,
                         .shared_scale = static_cast<float>(step_.spec.shared_scale * step_.spec.residual_scale),
                         .x = scratch.x.data()});
}

// Around, the shared expert is added to the norm of the routed ones.
void FfnBlock::CombineNormed(const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  ComputeBackend& backend = step_.backend;
  const int64_t hidden = step_.spec.hidden, first_row = block.begin, first_slot = first_row * step_.spec.top_k;
  float* const sum = scratch.projected.data();
  const float* const shared = step_.spec.shared_ffn > 0 ? &scratch.shared[first_row * hidden] : nullptr;
  const bool around = step_.spec.NormsAround();
  backend.Combine({.rows = block.count,
                   .cols = step_.spec.hidden,
                   .top_k = step_.spec.top_k,
                   .choices = &scratch.choices[first_slot],
                   .scale = static_cast<float>(step_.spec.router_scale),
                   .expert_scales = weights.expert_scales,
                   .places = scratch.slot_places.subspan(first_slot, static_cast<size_t>(block.count) * step_.spec.top_k),
                   .outputs = scratch.slots.data(),
                   .shared = around ? nullptr : shared,
                   .shared_gate = step_.spec.shared_gate ? &scratch.shared_gate[first_row] : nullptr,
                   .shared_scale = static_cast<float>(step_.spec.shared_scale),
                   .x = sum,
                   .adds = false});
  if (around) {
    step_.Normalize(sum, weights.experts_post_norm, block.count);
    if (shared != nullptr) backend.Add(sum, shared, block.count * hidden);
  }
  step_.Normalize(sum, weights.ffn_post_norm, block.count);
  step_.AddToResidual(&scratch.x[first_row * hidden], sum, block.count);
}

void FfnBlock::ComputeBypass(LayerId layer, const LayerWeights& weights, const Activations& input) {
  const int hidden = step_.spec.hidden;
  const InputForms forms = InputForms::Of({weights.bypass.format});
  step_.ForBlocks([&](RowBlock block) {
    const TraceSpan span(step_.trace, "bypass", kComputeTrack, layer);
    float* const output = &step_.scratch.shared[static_cast<size_t>(block.begin) * hidden];
    const bool has_forms = step_.expert_inputs.Cover(forms);
    const Activations own =
        has_forms ? input.Rows(block.begin, block.count)
                  : step_.backend.Prepare(step_.Residual(block), block.count, hidden, hidden, forms, step_.scratch.inner_storage);
    MatMulJob jobs[] = {{weights.bypass, &own, output, hidden}};
    step_.Multiply(jobs);
    step_.backend.SoftCap(output, 1, int64_t{block.count} * hidden);  // tanh
  });
}

// Their outputs stand behind those of the experts.
void FfnBlock::PassThroughDropped() {
  Scratch& scratch = step_.scratch;
  const int rows = step_.batch.rows();
  const auto computed = static_cast<size_t>(scratch.expert_begin[static_cast<size_t>(step_.spec.experts)]);
  const std::span<int32_t> dropped = scratch.expert_slots.subspan(computed, static_cast<size_t>(rows) - computed);
  size_t found = 0;
  for (int row = 0; row < rows; ++row) {
    if (scratch.choices[static_cast<size_t>(row)].expert != kNoExpert) continue;  // top_k is 1
    scratch.slot_places[static_cast<size_t>(row)] = static_cast<int32_t>(computed + found);
    dropped[found++] = row;
  }
  if (dropped.empty()) return;
  step_.backend.GatherRows(scratch.x.data(), step_.spec.hidden, dropped, &scratch.slots[computed * step_.spec.hidden]);
}

void FfnBlock::CombineWithBypass(const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  const int64_t hidden = step_.spec.hidden, first_row = block.begin, floats = block.count * hidden;
  float* const sum = scratch.projected.data();
  step_.backend.Combine({.rows = block.count,
                         .cols = step_.spec.hidden,
                         .top_k = 1,
                         .choices = &scratch.choices[first_row],
                         .places = scratch.slot_places.subspan(first_row, static_cast<size_t>(block.count)),
                         .outputs = scratch.slots.data(),
                         .x = sum,
                         .adds = false});
  step_.backend.Add(sum, &scratch.shared[first_row * hidden], floats);
  step_.backend.Normalize({weights.ffn_post_norm, weights.ffn_post_norm_bias, step_.spec.rms_eps}, sum, block.count,
                          step_.spec.hidden, sum);
  step_.backend.Add(&scratch.x[first_row * hidden], sum, floats);
}

// The rows that stay close up, by way of `normed`: none may land where another one still is.
void FfnBlock::DropFailed() {
  if (!step_.batch.AnyFailed()) return;
  Scratch& scratch = step_.scratch;
  const std::span<int32_t> rows = step_.batch.DropFailed(scratch.slot_places);
  step_.backend.GatherRows(scratch.x.data(), step_.spec.hidden, rows, scratch.normed.data());
  std::iota(rows.begin(), rows.end(), 0);
  step_.backend.GatherRows(scratch.normed.data(), step_.spec.hidden, rows, scratch.x.data());
}

}  // namespace moed
