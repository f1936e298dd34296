#include "core/model/decoder.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/model/stored_embedding.h"

namespace moed {

Decoder::Decoder(const ModelSpec& spec, const ModelOptions& options, Weights weights, ExpertFormats expert_formats,
                 InputForms expert_inputs, OwnScratch scratch, ComputeBackend& backend, KvPool& kv, Trace* trace,
                 ComputeBackend* processor)
    : spec_(spec),
      weights_(std::move(weights)),
      options_(options),
      own_scratch_(std::move(scratch)),
      step_{spec_, backend, kv, trace, std::move(expert_formats), expert_inputs, own_scratch_.scratch},
      own_rows_(step_.scratch),
      attention_(step_, weights_.inv_freq),
      latent_attention_(step_, weights_.inv_freq),
      encoder_decoder_(step_),
      prefix_lm_(step_),
      delta_(step_),
      mamba2_(step_),
      short_convolution_(step_),
      ffn_(step_, processor) {
  step_.batch = Batch(step_.scratch.chunks, step_.scratch.tokens, step_.scratch.positions, step_.scratch.row_chunks);
}

namespace {

bool IsSource(const SequenceChunk& chunk) { return chunk.kv->length == 0; }

}  // namespace

void Decoder::Forward(std::span<SequenceChunk> chunks, ExpertProvider& provider, LogitsSink sink, StepWatcher* watcher) {
  const absl::Cleanup released = [this] { ffn_.ReleaseExperts(); };  // where memory runs out, too
  step_.failure = absl::OkStatus();
  step_.watcher = watcher;
  for (SequenceChunk& chunk : chunks) {
    chunk.status = absl::OkStatus();
    chunk.dropped = 0;
    chunk.fast_matmul = false;
  }
  if (spec_.encoder) RunEncoder(chunks, provider, watcher);
  step_.batch.Assign(chunks, [&](const SequenceChunk& chunk) { return !spec_.encoder || !IsSource(chunk); });
  if (spec_.prefix) prefix_lm_.FindPrefixes();
  const bool begun = RunLayers(spec_.encoder ? spec_.encoder->layers : 0, spec_.layers, chunks, provider, watcher);
  const absl::Status done = ComputeLogits(sink);
  ffn_.EndStep(provider, done);
  if (!done.ok()) step_.batch.FailAll(done);
  for (const SequenceChunk& chunk : chunks) {
    if (begun || chunk.status.ok()) SettleKv(chunk);
  }
}

void Decoder::RunEncoder(std::span<SequenceChunk> chunks, ExpertProvider& provider, StepWatcher* watcher) {
  step_.batch.Assign(chunks, IsSource);
  for (const BatchChunk& source : step_.batch.chunks()) source.chunk->kv->source = source.rows();
  RunLayers(0, spec_.encoder->layers, chunks, provider, watcher);
  if (step_.batch.rows() == 0) return;
  encoder_decoder_.KeepSources(weights_);
  // The decoder's rows may lie elsewhere, where experts are now.
  if (const absl::Status done = step_.Fence(); !done.ok()) step_.batch.FailAll(done);
  ffn_.ReleaseExperts();
}

bool Decoder::RunLayers(int first, int end, std::span<SequenceChunk> chunks, ExpertProvider& provider, StepWatcher* watcher) {
  if (step_.batch.rows() == 0) return true;
  ChooseProducts();
  if (const absl::Status placed = PlaceRows(provider); !placed.ok()) {
    step_.batch.FailAll(placed);
    ffn_.DropFailed();
    return false;
  }
  if (weights_.stored_embedding != nullptr) ReadEmbedding();
  if (step_.batch.rows() == 0) return true;
  TellTokens(provider);
  ffn_.BeginStep(provider);
  Embed();
  for (int layer = first; layer < end && step_.batch.rows() > 0; ++layer) {
    if (layer > first) PreviewGate(LayerId(layer), provider);
    RunLayer(LayerId(layer), provider);
    if (watcher == nullptr || ffn_.runs_whole() || layer + 1 == spec_.layers) continue;
    watcher->OnLayerDone(chunks);
    ffn_.DropFailed();
  }
  return true;
}

EmbeddingStats Decoder::embedding_stats() const {
  return weights_.stored_embedding == nullptr ? EmbeddingStats{} : weights_.stored_embedding->stats();
}

void Decoder::SettleKv(const SequenceChunk& chunk) {
  KvSequence& kv = *chunk.kv;
  const int reached = kv.length + static_cast<int>(chunk.tokens.size());
  if (!chunk.status.ok()) return step_.kv.CutBack(kv, kv.length, reached);
  kv.length = reached;
}

void Decoder::ChooseProducts() {
  const auto allows = [](const BatchChunk& part) { return part.chunk->fidelity.fast_matmul(); };
  step_.fast_matmul =
      options_.fast_matmul && step_.batch.rows() >= kLeastHalfRows && std::ranges::all_of(step_.batch.chunks(), allows);
  if (!step_.fast_matmul) return;
  for (const BatchChunk& part : step_.batch.chunks()) part.chunk->fast_matmul = true;
}

absl::Status Decoder::PlaceRows(ExpertProvider& provider) {
  const int rows = step_.batch.rows();
  const uint64_t lent = moed::LentBytes(spec_, options_, rows);
  ActivationLender* lender = provider.lender();
  MOED_CHECK(lender != nullptr || lent == 0);
  std::span<std::byte> memory;
  if (lender != nullptr) {
    MOED_ASSIGN_OR_RETURN(memory, lender->Lend(lent));
  }
  static_cast<TokenRows&>(step_.scratch) = lent > 0 ? CarveLent(spec_, options_, rows, memory) : own_rows_;
  return absl::OkStatus();
}

void Decoder::TellTokens(ExpertProvider& provider) {
  for (int row = 0; row < step_.batch.rows(); ++row) {
    const TokenId token = step_.batch.tokens()[row];
    MOED_CHECK(token.value() >= 0 && token.value() < spec_.vocabulary);
    provider.OnToken(step_.batch.chunk_of(row).chunk->sequence, token);
  }
}

// Before anything else is read for the step.
void Decoder::ReadEmbedding() {
  const TraceSpan span(step_.trace, "embedding", kComputeTrack);
  const auto failed = [this](size_t row, const absl::Status& error) {
    step_.batch.chunk_of(static_cast<int>(row)).chunk->status.Update(error);
  };
  step_.failure.Update(weights_.stored_embedding->Embed(step_.batch.tokens(), step_.scratch.x.data(), failed));
  if (!step_.failure.ok()) step_.batch.FailAll(step_.failure);
  ffn_.DropFailed();
}

void Decoder::Embed() {
  float* x = step_.scratch.x.data();
  if (weights_.stored_embedding == nullptr) step_.backend.Embed(weights_.embed, step_.batch.tokens(), x);
  if (spec_.prefix) prefix_lm_.AddPositions(weights_.positions);
  if (spec_.embedding_scale == 1) return;
  step_.backend.Scale(x, static_cast<float>(spec_.embedding_scale), int64_t{step_.batch.rows()} * spec_.hidden);
}

// Where the layer's mixer gives reads time to use it.
void Decoder::PreviewGate(LayerId layer, ExpertProvider& provider) {
  const int of = layer.value();
  if (spec_.moe[of - 1] && spec_.moe[of] && spec_.HasMixer(layer)) ffn_.PreviewGate(layer, weights_.layers[of], provider);
}

void Decoder::RunLayer(LayerId layer, ExpertProvider& provider) {
  const LayerWeights& weights = weights_.layers[layer.value()];
  if (spec_.BeginsExtraLayers(layer)) prefix_lm_.AddPositions(weights_.extra_positions);
  if (spec_.parallel) step_.CopyRows(step_.scratch.x.data(), step_.batch.rows(), step_.scratch.layer_input.data());
  const bool has_experts = spec_.moe[layer.value()];
  if (has_experts && spec_.RoutesEarly()) ffn_.ChooseExperts(layer, weights, provider);
  if (spec_.HasMixer(layer)) RunMixer(layer, weights);
  if (has_experts) {
    if (!spec_.RoutesEarly()) ffn_.ChooseExperts(layer, weights, provider);
    ffn_.RunExperts(layer, weights, provider);
  } else if (spec_.prefix) {
    prefix_lm_.RunDense(layer, weights);
  } else if (spec_.HasFfn(layer)) {
    ffn_.RunDense(layer, weights);
  }
  if (!spec_.layer_scale) return;
  step_.backend.Scale(step_.scratch.x.data(), weights.layer_scale, int64_t{step_.batch.rows()} * spec_.hidden);
}

void Decoder::RunMixer(LayerId layer, const LayerWeights& weights) {
  if (spec_.encoder) {
    return spec_.IsEncoder(layer) ? encoder_decoder_.RunEncoder(layer, weights) : encoder_decoder_.RunDecoder(layer, weights);
  }
  if (spec_.prefix) return prefix_lm_.RunAttention(layer, weights);
  if (spec_.HasAttention(layer)) {
    return spec_.latent ? latent_attention_.Run(layer, weights) : attention_.Run(layer, weights);
  }
  if (spec_.delta_net) return delta_.Run(layer, weights);
  if (spec_.mamba2) return mamba2_.Run(layer, weights);
  short_convolution_.Run(layer, weights);
}

absl::Status Decoder::ComputeLogits(LogitsSink sink) {
  const std::span<int32_t> rows = step_.scratch.logits_rows;
  size_t pending = 0;
  bool waited = false;
  for (int row = 0; row < step_.batch.rows(); ++row) {
    const BatchChunk& chunk = step_.batch.chunk_of(row);
    if (row - chunk.first_row < chunk.chunk->first_logits) continue;
    rows[pending++] = row;
    waited = pending == rows.size();
    if (waited) MOED_RETURN_IF_ERROR(ProjectLogits(rows.first(std::exchange(pending, 0)), sink));
  }
  if (waited) return absl::OkStatus();
  return pending > 0 ? ProjectLogits(rows.first(pending), sink) : step_.Fence();
}

absl::Status Decoder::ProjectLogits(std::span<const int32_t> rows, LogitsSink sink) {
  Scratch& scratch = step_.scratch;
  ComputeBackend& backend = step_.backend;
  const int count = static_cast<int>(rows.size());
  const int hidden = spec_.hidden;
  {
    const TraceSpan span(step_.trace, "logits", kComputeTrack);
    float* normed = scratch.normed.data();
    backend.GatherRows(scratch.x.data(), hidden, rows, normed);
    const InputForms forms = InputForms::Of({weights_.head.format});
    const Activations input = spec_.prefix ? backend.Prepare(prefix_lm_.Project(weights_, normed, count), count, hidden, hidden,
                                                             forms, scratch.inner_storage)
                                           : step_.NormalizeAndPrepare(normed, weights_.final_norm, weights_.final_norm_bias,
                                                                       count, normed, forms, scratch.block_storage);
    const auto scale = static_cast<float>(spec_.logits_scale);
    float* const logits = scratch.uncapped_logits.data();
    const MatMulJob jobs[] = {{weights_.head, &input, logits, spec_.vocabulary, weights_.head_bias, scale}};
    backend.MatMul(jobs);
    const auto cap = static_cast<float>(spec_.logits_cap);
    const int64_t numbers = int64_t{count} * spec_.vocabulary;
    if (cap != 0) backend.SoftCap(logits, cap, numbers);
    if (logits != scratch.logits.data()) backend.memory().Copy(scratch.logits.data(), logits, numbers * sizeof(float));
    MOED_RETURN_IF_ERROR(step_.Fence());
  }
  for (int i = 0; i < count; ++i) {
    const BatchChunk& chunk = step_.batch.chunk_of(rows[i]);
    sink(chunk.index, rows[i] - chunk.first_row,
         scratch.logits.subspan(static_cast<size_t>(i) * spec_.vocabulary, spec_.vocabulary));
  }
  return absl::OkStatus();
}

void Decoder::GateProbabilities(LayerId layer, std::span<const float> hidden, std::span<float> probabilities) {
  MOED_CHECK(spec_.moe[layer.value()]);
  MOED_CHECK(static_cast<int>(hidden.size()) == spec_.hidden && static_cast<int>(probabilities.size()) == spec_.experts);
  const TraceSpan span(step_.trace, "look-ahead gate", kComputeTrack, layer);
  const LayerWeights& weights = weights_.layers[layer.value()];
  Scratch& scratch = step_.scratch;
  std::ranges::copy(hidden, scratch.gate_input.begin());
  const Activations input = step_.backend.Prepare(scratch.gate_input.data(), 1, spec_.hidden, spec_.hidden,
                                                  InputForms::Of({weights.router.format}), scratch.gate_storage);
  float* const scores = scratch.gate_scores.data();
  const MatMulJob jobs[] = {step_.RouterJob(weights, input, scores)};
  step_.backend.MatMul(jobs);
  step_.backend.Rank(RouterOf(spec_, weights), scores, 1);
  if (step_.Fence().ok()) {
    std::ranges::copy(scratch.gate_scores, probabilities.begin());
  } else {
    std::ranges::fill(probabilities, 0.0f);
  }
}

}  // namespace moed
