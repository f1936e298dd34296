#include "core/model/attention_block.h"

#include <algorithm>

#include "core/model/kv_runs.h"
#include "core/model/query_temperature.h"

namespace moed {

AttentionBlock::AttentionBlock(Step& step, const float* inv_freq) : step_(step), inv_freq_(inv_freq) {
  for (int i = 0; i < step.spec.rotation_count(); ++i) score_factors_.push_back(step.spec.ScoreFactor(i));
}

// Blocks in order: a row attends to keys of earlier rows of its chunk, which their blocks have stored.
void AttentionBlock::Run(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "attention", kComputeTrack, layer);
  heads_ = step_.spec.HeadsOf(layer);
  const bool turns = step_.spec.Rotates(layer);
  step_.ForBlocks([&](RowBlock block) {
    ProjectQkv(weights, block);
    if (step_.spec.value_norm) NormalizeValues(block);
    if (step_.spec.qk_norm == ModelSpec::QkNorm::kWhole) NormalizeQk(weights, block);
    if (step_.spec.qk_norm == ModelSpec::QkNorm::kUnit && turns) NormalizeHeads(block);
    if (const auto& temperature = step_.spec.temperature; temperature && !(temperature->of_unrotated && turns)) {
      ScaleQueries(step_, block, q_width(), step_.scratch.q.data());
    }
    StoreAndAttend(layer, weights, block);
    if (step_.spec.attention_gate) Gate(block);
    step_.ProjectAttended(weights.o, weights.o_bias, block, weights.attn_post_norm);
  });
}

void AttentionBlock::ProjectQkv(const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  const bool gated = step_.spec.attention_gate;
  const MatrixView& v = heads_.values_are_keys ? weights.k : weights.v;
  const Activations input = step_.MixerInput(
      weights, block, {weights.q.format, weights.k.format, v.format, (gated ? weights.attention_gate : weights.q).format});
  MatMulJob jobs[] = {
      {weights.q, &input, scratch.q.data(), q_width(), weights.q_bias},
      {weights.k, &input, scratch.k.data(), kv_width(), weights.k_bias},
      {weights.v, &input, scratch.v.data(), kv_width(), weights.v_bias},
      {weights.attention_gate, &input, scratch.attention_gate.data(), step_.spec.GateWidth(heads_)},
  };
  step_.Multiply(std::span(jobs).first(heads_.values_are_keys ? 2 : gated ? 4 : 3));
}

void AttentionBlock::Gate(RowBlock block) {
  float* const attended = step_.scratch.attended.data();
  const float* const gate = step_.scratch.attention_gate.data();
  const int width = step_.spec.GateWidth(heads_);
  const int64_t gates = int64_t{block.count} * width;
  if (step_.spec.gate_kind == ModelSpec::GateKind::kSigmoid) return step_.backend.SigmoidGate(attended, gate, gates);
  step_.backend.SoftplusGate(attended, gate, gates, q_width() / width);
}

void AttentionBlock::NormalizeValues(RowBlock block) {
  const float* const values = (heads_.values_are_keys ? step_.scratch.k : step_.scratch.v).data();
  step_.backend.Normalize({.eps = step_.spec.rms_eps}, values, block.count * heads_.kv_heads, heads_.head_dim,
                          step_.scratch.v.data());
}

void AttentionBlock::NormalizeQk(const LayerWeights& weights, RowBlock block) {
  const auto normalize = [&](float* x, const float* weight, int cols) {
    step_.backend.Normalize({.weight = weight, .eps = step_.spec.rms_eps}, x, block.count, cols, x);
  };
  normalize(step_.scratch.q.data(), weights.q_norm, q_width());
  normalize(step_.scratch.k.data(), weights.k_norm, kv_width());
}

// Their rotation, which follows, does not change the mean of their squares.
void AttentionBlock::NormalizeHeads(RowBlock block) {
  const auto normalize = [&](float* x, int heads) {
    step_.backend.Normalize({.eps = step_.spec.rms_eps}, x, block.count * heads, heads_.head_dim, x);
  };
  normalize(step_.scratch.q.data(), step_.spec.heads);
  normalize(step_.scratch.k.data(), heads_.kv_heads);
}

HeadTransform AttentionBlock::TransformOf(LayerId layer, const LayerWeights& weights) const {
  const ModelSpec& spec = step_.spec;
  const int rotation = spec.RotationOf(layer);
  HeadTransform transform = {.eps = spec.rms_eps, .norm_last = spec.qk_norm_after_rope};
  if (spec.qk_norm == ModelSpec::QkNorm::kPerHead) {
    transform.query_norm = weights.q_norm;
    transform.key_norm = weights.k_norm;
  }
  if (!spec.Rotates(layer)) return transform;
  transform.rotary_dims = spec.RotaryDims(rotation);
  transform.interleaved = spec.rope_interleaved;
  transform.inv_freq = inv_freq_ + spec.FirstFrequency(rotation);
  transform.magnitude = static_cast<float>(spec.RotationMagnitude(rotation));
  return transform;
}

// Rotation multiplies queries and keys by its attention factor, here their product. Where it turns a part of a head the norm of
// the queries has it, or the rotation itself.
void AttentionBlock::StoreAndAttend(LayerId layer, const LayerWeights& weights, RowBlock block) {
  const ModelSpec& spec = step_.spec;
  Scratch& scratch = step_.scratch;
  const double factor = spec.Rotates(layer) ? score_factors_[spec.RotationOf(layer)] : 1;
  const AttentionShape shape = {.heads = spec.QueryHeads(heads_),
                                .kv_heads = heads_.kv_heads,
                                .head_dim = heads_.head_dim,
                                .page_tokens = step_.kv.page_tokens(),
                                .scale = static_cast<float>(factor * spec.AttentionScale(heads_.head_dim)),
                                .kv_format = step_.kv.format(),
                                .window = spec.WindowOf(layer),
                                .sinks = weights.sinks};
  const HeadTransform transform = TransformOf(layer, weights);
  const int most_rows = shape.window > 0 ? kBlockRows : block.count;  // a ring has no room for more behind its window
  for (int done = 0; done < block.count;) {
    const int32_t* const positions = &step_.batch.positions()[block.begin + done];
    const size_t q = static_cast<size_t>(done) * q_width();
    const size_t kv = static_cast<size_t>(done) * kv_width();
    std::span<const KvRun> runs;
    done = PlanRuns(step_, layer, {block.begin, std::min(block.count, done + most_rows)}, done, runs);
    step_.backend.TransformAndStore(shape, transform, runs, positions, &scratch.q[q], &scratch.k[kv], &scratch.v[kv]);
    step_.backend.Attention(shape, runs, &scratch.q[q], &scratch.attended[q], scratch.scores);
  }
}

}  // namespace moed
