#include "core/model/attention_block.h"

#include "core/model/kv_runs.h"

namespace moed {

AttentionBlock::AttentionBlock(Step& step, const float* inv_freq) : step_(step), inv_freq_(inv_freq) {
  for (int i = 0; i < step.spec.rotation_count(); ++i) attention_factors_.push_back(step.spec.rotation(i).AttentionFactor());
}

// Blocks in order: a row attends to keys of earlier rows of its chunk, which their blocks have stored.
void AttentionBlock::Run(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "attention", kComputeTrack, layer);
  heads_ = step_.spec.HeadsOf(layer);
  step_.ForBlocks([&](RowBlock block) {
    ProjectQkv(weights, block);
    if (step_.spec.value_norm) NormalizeValues(block);
    if (!step_.spec.qk_norm_after_rope) NormalizeQk(weights, block);
    RotateQk(layer, block);
    if (step_.spec.qk_norm_after_rope) NormalizeQk(weights, block);
    StoreAndAttend(layer, weights, block);
    if (step_.spec.attention_gate) {
      step_.backend.SigmoidGate(step_.scratch.attended.data(), step_.scratch.attention_gate.data(),
                                int64_t{block.count} * q_width());
    }
    step_.ProjectAttended(weights.o, weights.o_bias, block, weights.attn_post_norm);
  });
}

void AttentionBlock::ProjectQkv(const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  ComputeBackend& backend = step_.backend;
  const int rows = block.count;
  const float* x = &scratch.x[static_cast<size_t>(block.begin) * step_.spec.hidden];
  step_.Normalize(x, weights.attn_norm, weights.attn_norm_bias, rows, scratch.normed.data());
  const bool gated = step_.spec.attention_gate;
  const MatrixView& v = heads_.values_are_keys ? weights.k : weights.v;
  const InputForms forms =
      InputForms::Of({weights.q.format, weights.k.format, v.format, (gated ? weights.attention_gate : weights.q).format});
  const Activations input =
      backend.Prepare(scratch.normed.data(), rows, step_.spec.hidden, step_.spec.hidden, forms, scratch.block_storage);
  const MatMulJob jobs[] = {
      {weights.q, &input, scratch.q.data(), q_width(), weights.q_bias},
      {weights.k, &input, scratch.k.data(), kv_width(), weights.k_bias},
      {weights.v, &input, scratch.v.data(), kv_width(), weights.v_bias},
      {weights.attention_gate, &input, scratch.attention_gate.data(), q_width()},
  };
  backend.MatMul(std::span(jobs).first(heads_.values_are_keys ? 2 : gated ? 4 : 3));
}

void AttentionBlock::NormalizeValues(RowBlock block) {
  const float* const values = (heads_.values_are_keys ? step_.scratch.k : step_.scratch.v).data();
  step_.backend.RmsNorm(values, nullptr, step_.spec.rms_eps, block.count * heads_.kv_heads, heads_.head_dim,
                        step_.scratch.v.data());
}

void AttentionBlock::NormalizeQk(const LayerWeights& weights, RowBlock block) {
  const ModelSpec& spec = step_.spec;
  if (spec.qk_norm == ModelSpec::QkNorm::kNone) return;
  const bool per_head = spec.qk_norm == ModelSpec::QkNorm::kPerHead;
  const auto normalize = [&](std::span<float> x, const float* weight, int heads) {
    const int rows = block.count * (per_head ? heads : 1);
    const int cols = heads_.head_dim * (per_head ? 1 : heads);
    step_.backend.RmsNorm(x.data(), weight, spec.rms_eps, rows, cols, x.data());
  };
  normalize(step_.scratch.q, weights.q_norm, spec.heads);
  normalize(step_.scratch.k, weights.k_norm, heads_.kv_heads);
}

void AttentionBlock::RotateQk(LayerId layer, RowBlock block) {
  const ModelSpec& spec = step_.spec;
  if (spec.unrotated) return;
  const int rotation = spec.RotationOf(layer);
  const float* const inv_freq = inv_freq_ + spec.FirstFrequency(rotation);
  const int rows = block.count;
  const int32_t* positions = step_.batch.positions().data() + block.begin;
  RopeShape shape = {spec.heads, heads_.head_dim, spec.RotaryDims(rotation), spec.rope_interleaved};
  step_.backend.Rope(shape, step_.scratch.q.data(), rows, q_width(), positions, inv_freq);
  shape.heads = heads_.kv_heads;
  step_.backend.Rope(shape, step_.scratch.k.data(), rows, kv_width(), positions, inv_freq);
}

// Rotation multiplies queries and keys by its attention factor, here their product.
void AttentionBlock::StoreAndAttend(LayerId layer, const LayerWeights& weights, RowBlock block) {
  const ModelSpec& spec = step_.spec;
  Scratch& scratch = step_.scratch;
  const double factor = attention_factors_[spec.RotationOf(layer)];
  const AttentionShape shape = {.heads = spec.heads,
                                .kv_heads = heads_.kv_heads,
                                .head_dim = heads_.head_dim,
                                .page_tokens = step_.kv.page_tokens(),
                                .scale = static_cast<float>(factor * factor * spec.AttentionScale(heads_.head_dim)),
                                .kv_format = step_.kv.format(),
                                .window = spec.WindowOf(layer),
                                .sinks = weights.sinks};
  for (int done = 0; done < block.count;) {
    const size_t q = static_cast<size_t>(done) * q_width();
    const size_t kv = static_cast<size_t>(done) * kv_width();
    std::span<const KvRun> runs;
    done = PlanRuns(step_, layer, block, done, runs);
    step_.backend.StoreKv(shape, runs, &scratch.k[kv], &scratch.v[kv]);
    step_.backend.Attention(shape, runs, &scratch.q[q], &scratch.attended[q], scratch.scores);
  }
}

}  // namespace moed
