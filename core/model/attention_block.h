// x += o(gate * attention(rope(qk_norm(qkv(attn_norm(x)))))), step by step.
#pragma once

#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class AttentionBlock {
 public:
  // Both outlive the block.
  AttentionBlock(Step& step, const float* inv_freq) : step_(step), inv_freq_(inv_freq) {}
  void Run(LayerId layer, const LayerWeights& weights);

 private:
  void ProjectQkv(const LayerWeights& weights, RowBlock block);
  void NormalizeQk(const LayerWeights& weights, RowBlock block);
  void RotateQk(LayerId layer, RowBlock block);
  void StoreAndAttend(LayerId layer, const LayerWeights& weights, RowBlock block);

  int q_width() const { return step_.spec.heads * step_.spec.head_dim; }
  int kv_width() const { return step_.spec.kv_heads * step_.spec.head_dim; }

  Step& step_;
  const float* inv_freq_;  // (rotations, rotary dims / 2)
};

}  // namespace moed
