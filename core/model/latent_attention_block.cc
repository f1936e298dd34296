#include "core/model/latent_attention_block.h"

#include <algorithm>
#include <array>

#include "core/model/query_temperature.h"

namespace moed {

// Blocks in order: a row attends to rows of its chunk before it, which their blocks have stored.
void LatentAttentionBlock::Run(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "attention", kComputeTrack, layer);
  step_.ForBlocks([&](RowBlock block) {
    Project(weights, block);
    if (step_.spec.temperature) ScaleQueries(step_, block, step_.spec.heads * step_.spec.head_dim, step_.scratch.q.data());
    AbsorbKeys(weights.latent, block);
    Rotate(block);
    StoreAndAttend(layer, block);
    ProjectValues(weights.latent, block);
    step_.ProjectAttended(weights.o, weights.o_bias, block);
  });
}

// The rows of kv_a are those of the latent, then those of the rotated key.
void LatentAttentionBlock::Project(const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  ComputeBackend& backend = step_.backend;
  const ModelSpec& spec = step_.spec;
  const MatrixView kv_a = weights.latent.kv_a;
  const MatrixView& first_q = latent().q_rank > 0 ? weights.latent.q_a : weights.q;
  const Activations normed = step_.MixerInput(weights, block, {first_q.format, kv_a.format});
  const int first_width = first_q.rows;
  MatMulJob jobs[] = {
      {first_q, &normed, latent().q_rank > 0 ? scratch.latent.q_a.data() : scratch.q.data(), first_width},
      {kv_a.Rows(0, latent().kv_rank), &normed, scratch.latent.latents.data(), latent().kv_rank},
      {kv_a.Rows(latent().kv_rank, spec.rotary_dims), &normed, scratch.latent.rotated.data(), spec.rotary_dims},
  };
  step_.Multiply(jobs);
  const auto eps = static_cast<float>(latent().norm_eps);
  float* latents = scratch.latent.latents.data();
  backend.Normalize({.weight = weights.latent.kv_a_norm, .eps = eps}, latents, block.count, latent().kv_rank, latents);
  if (latent().q_rank == 0) return;
  float* q_a = scratch.latent.q_a.data();
  const Activations compressed =
      backend.NormalizeAndPrepare({.weight = weights.latent.q_a_norm, .eps = eps}, q_a, block.count, latent().q_rank, q_a,
                                  InputForms::Of({weights.q.format}), scratch.inner_storage);
  MatMulJob q[] = {{weights.q, &compressed, scratch.q.data(), spec.heads * spec.head_dim}};
  step_.Multiply(q);
}

void LatentAttentionBlock::AbsorbKeys(const LatentWeights& weights, RowBlock block) {
  MultiplyHeads(weights.k_b, step_.scratch.q.data(), key_dim(), step_.spec.head_dim, block.count,
                step_.scratch.latent.query.data());
}

// Rotation multiplies queries and keys by YaRN's attention factor, here the queries by both. All of q, since what is not rotated
// has been read.
void LatentAttentionBlock::Rotate(RowBlock block) {
  const ModelSpec& spec = step_.spec;
  if (spec.unrotated) return;
  const int rows = block.count;
  const int q_width = spec.heads * spec.head_dim;
  const int32_t* positions = step_.batch.positions().data() + block.begin;
  float* const q = step_.scratch.q.data();
  step_.backend.Rope({spec.heads, spec.head_dim, spec.rotary_dims, spec.rope_interleaved}, q + key_dim(), rows, q_width,
                     positions, inv_freq_);
  step_.backend.Rope({1, spec.rotary_dims, spec.rotary_dims, spec.rope_interleaved}, step_.scratch.latent.rotated.data(), rows,
                     spec.rotary_dims, positions, inv_freq_);
  const double factor = spec.yarn ? spec.yarn->attention_factor : 1;
  if (factor != 1) step_.backend.Scale(q, static_cast<float>(factor * factor), int64_t{rows} * q_width);
}

// Sums of latents take the place of queries.
void LatentAttentionBlock::StoreAndAttend(LayerId layer, RowBlock block) {
  const ModelSpec& spec = step_.spec;
  Scratch& scratch = step_.scratch;
  const LatentShape shape = {.heads = spec.heads,
                             .rank = latent().kv_rank,
                             .rotary_dims = spec.rotary_dims,
                             .page_tokens = step_.kv.page_tokens(),
                             .scale = static_cast<float>(spec.AttentionScale()),
                             .kv_format = step_.kv.format()};
  for (int done = 0; done < block.count;) {
    const auto first = static_cast<size_t>(done);
    std::span<const KvRun> runs;
    done = PlanRuns(step_, layer, block, done, runs);
    step_.backend.StoreLatent(shape, runs, &scratch.latent.latents[first * latent().kv_rank],
                              &scratch.latent.rotated[first * spec.rotary_dims]);
    float* const query = &scratch.latent.query[first * spec.heads * latent().kv_rank];
    step_.backend.AttendLatent(shape, runs, query, &scratch.q[first * spec.heads * spec.head_dim + key_dim()], spec.head_dim,
                               query, scratch.scores);
  }
}

void LatentAttentionBlock::ProjectValues(const LatentWeights& weights, RowBlock block) {
  MultiplyHeads(weights.v_b, step_.scratch.latent.query.data(), latent().kv_rank, latent().kv_rank, block.count,
                step_.scratch.attended.data());
}

// As many heads together as there is storage for. Of one row their inputs are prepared together as well.
void LatentAttentionBlock::MultiplyHeads(const MatrixView& weights, const float* input, int width, int64_t stride, int rows,
                                         float* output) {
  const int heads = step_.spec.heads;
  const int height = weights.rows / heads;
  const std::span<std::byte> storage = step_.scratch.latent.head_storage;
  const size_t head_bytes = storage.size() / kLatentHeads;
  const InputForms forms = InputForms::Of({weights.format});
  std::array<Activations, kLatentHeads> inputs;
  std::array<MatMulJob, kLatentHeads> jobs;
  for (int first = 0; first < heads; first += kLatentHeads) {
    const int count = std::min(kLatentHeads, heads - first);
    Activations all;
    if (rows == 1) all = step_.backend.Prepare(input + first * stride, count, width, stride, forms, storage);
    for (int i = 0; i < count; ++i) {
      const int head = first + i;
      inputs[i] = rows == 1 ? all.Rows(i, 1)
                            : step_.backend.Prepare(input + head * stride, rows, width, heads * stride, forms,
                                                    storage.subspan(i * head_bytes, head_bytes));
      jobs[i] = {weights.Rows(head * height, height), &inputs[i], output + int64_t{head} * height, int64_t{heads} * height};
    }
    step_.backend.MatMul(std::span(jobs).first(count));
  }
}

}  // namespace moed
