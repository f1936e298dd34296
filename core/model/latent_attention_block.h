// x += o(values(attention(queries, rows))), multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) with the
// projections of keys and values absorbed: a position's row is all that is kept of it. k_b takes a head's query to the latents,
// so that scores are products with them; attention sums latents, and v_b takes the sum to the head's values.
#pragma once

#include "core/model/kv_runs.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class LatentAttentionBlock {
 public:
  // Both outlive the block. Of a model with spec.latent.
  LatentAttentionBlock(Step& step, const float* inv_freq) : step_(step), inv_freq_(inv_freq) {}
  void Run(LayerId layer, const LayerWeights& weights);

 private:
  void Project(const LayerWeights& weights, RowBlock block);
  void AbsorbKeys(const LatentWeights& weights, RowBlock block);
  void Rotate(RowBlock block);
  void StoreAndAttend(LayerId layer, RowBlock block);
  void ProjectValues(const LatentWeights& weights, RowBlock block);
  // For each head: output rows (rows, heads, height) = its part (height, width) of `weights` times its input rows. `input` (rows,
  // heads, width) with `stride` floats from head to head.
  void MultiplyHeads(const MatrixView& weights, const float* input, int width, int64_t stride, int rows, float* output);

  const LatentAttention& latent() const { return *step_.spec.latent; }
  int key_dim() const { return step_.spec.head_dim - step_.spec.rotary_dims; }

  Step& step_;
  const float* inv_freq_;  // (rotary dims / 2)
};

}  // namespace moed
