#include "core/model/prefix_lm_block.h"

#include <algorithm>

namespace moed {

void PrefixLmBlock::FindPrefixes() {
  const TokenId separator(step_.spec.prefix->separator);
  for (const BatchChunk& part : step_.batch.chunks()) {
    KvSequence& kv = *part.chunk->kv;
    if (kv.length > 0) continue;
    const auto found = std::ranges::find(part.chunk->tokens, separator);
    kv.prefix = found == part.chunk->tokens.end() ? 0 : static_cast<int>(found - part.chunk->tokens.begin());
  }
}

void PrefixLmBlock::AddPositions(const MatrixView& matrix) {
  Scratch& scratch = step_.scratch;
  const int rows = step_.batch.rows();
  const std::span<TokenId> ids = scratch.position_ids.first(static_cast<size_t>(rows));
  std::ranges::transform(step_.batch.positions(), ids.begin(), [](int32_t position) { return TokenId(position); });
  step_.backend.Embed(matrix, ids, scratch.normed.data());
  step_.backend.Add(scratch.x.data(), scratch.normed.data(), int64_t{rows} * step_.spec.hidden);
}

AttentionShape PrefixLmBlock::Shape() const {
  const ModelSpec& spec = step_.spec;
  return {.heads = spec.heads,
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .page_tokens = step_.kv.page_tokens(),
          .scale = static_cast<float>(spec.AttentionScale()),
          .kv_format = step_.kv.format()};
}

Activations PrefixLmBlock::Input(RowBlock block, std::initializer_list<FormatId> formats) const {
  const int hidden = step_.spec.hidden;
  return step_.backend.Prepare(step_.Residual(block), block.count, hidden, hidden, InputForms::Of(formats),
                               step_.scratch.block_storage);
}

void PrefixLmBlock::AddNormed(const float* weight, const float* bias, RowBlock block) {
  float* const projected = step_.scratch.projected.data();
  step_.backend.Normalize({weight, bias, step_.spec.rms_eps}, projected, block.count, step_.spec.hidden, projected);
  step_.backend.Add(step_.Residual(block), projected, int64_t{block.count} * step_.spec.hidden);
}

// Keys and values of all rows are there before the first row attends to them.
void PrefixLmBlock::RunAttention(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "attention", kComputeTrack, layer);
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  const auto for_runs = [&](RowBlock block, const auto& body) {
    for (int done = 0; done < block.count;) {
      const size_t from = static_cast<size_t>(done) * hidden;
      std::span<const KvRun> runs;
      done = PlanRuns(step_, layer, block, done, runs);
      body(runs, from);
    }
  };
  step_.ForBlocks([&](RowBlock block) {
    const Activations input = Input(block, {weights.k.format, weights.v.format});
    MatMulJob jobs[] = {{weights.k, &input, scratch.k.data(), hidden}, {weights.v, &input, scratch.v.data(), hidden}};
    step_.Multiply(jobs);
    for_runs(block, [&](std::span<const KvRun> runs, size_t from) {
      step_.backend.StoreKv(Shape(), runs, &scratch.k[from], &scratch.v[from]);
    });
  });
  step_.ForBlocks([&](RowBlock block) {
    const Activations input = Input(block, {weights.q.format});
    MatMulJob jobs[] = {{weights.q, &input, scratch.q.data(), hidden}};
    step_.Multiply(jobs);
    for_runs(block, [&](std::span<const KvRun> runs, size_t from) {
      step_.backend.Attention(Shape(), runs, &scratch.q[from], &scratch.attended[from], scratch.scores);
    });
    const Activations attended = step_.backend.Prepare(scratch.attended.data(), block.count, hidden, hidden,
                                                       InputForms::Of({weights.o.format}), scratch.inner_storage);
    MatMulJob out[] = {{weights.o, &attended, scratch.projected.data(), hidden}};
    step_.Multiply(out);
    AddNormed(weights.attn_post_norm, weights.attn_post_norm_bias, block);
  });
}

void PrefixLmBlock::RunDense(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "dense", kComputeTrack, layer);
  Scratch& scratch = step_.scratch;
  const FfnWeights& dense = weights.dense;
  const int ffn = dense.up.rows;
  step_.ForBlocks([&](RowBlock block) {
    const Activations input = Input(block, {dense.up.format});
    MatMulJob up[] = {{dense.up, &input, scratch.up.data(), ffn, dense.up_bias}};
    step_.Multiply(up);
    step_.backend.SigmoidGate(scratch.up.data(), scratch.up.data(), int64_t{block.count} * ffn);
    const Activations inner = step_.backend.Prepare(scratch.up.data(), block.count, ffn, ffn, InputForms::Of({dense.down.format}),
                                                    scratch.inner_storage);
    MatMulJob down[] = {{dense.down, &inner, scratch.projected.data(), step_.spec.hidden, dense.down_bias}};
    step_.Multiply(down);
    AddNormed(weights.ffn_post_norm, weights.ffn_post_norm_bias, block);
  });
}

const float* PrefixLmBlock::Project(const Weights& weights, const float* x, int rows) {
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  const Activations input =
      step_.backend.Prepare(x, rows, hidden, hidden, InputForms::Of({weights.last_project.format}), scratch.block_storage);
  float* const projected = scratch.projected.data();
  MatMulJob jobs[] = {{weights.last_project, &input, projected, hidden, weights.last_project_bias}};
  step_.backend.MatMul(jobs);
  step_.backend.SigmoidGate(projected, projected, int64_t{rows} * hidden);
  return projected;
}

}  // namespace moed
