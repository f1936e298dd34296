// x += post_norm(o(gate * attention(rope(qkv_norm(qkv(attn_norm(x))))))), step by step; a model has some of these.
#pragma once

#include <vector>

#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class AttentionBlock {
 public:
  // Both outlive the block.
  AttentionBlock(Step& step, const float* inv_freq);
  void Run(LayerId layer, const LayerWeights& weights);

 private:
  void ProjectQkv(const LayerWeights& weights, RowBlock block);
  // Before the keys have their norm.
  void NormalizeValues(RowBlock block);
  // All heads of a row together.
  void NormalizeQk(const LayerWeights& weights, RowBlock block);
  // Each head by itself, without weights.
  void NormalizeHeads(RowBlock block);
  HeadTransform TransformOf(LayerId layer, const LayerWeights& weights) const;
  void Gate(RowBlock block);
  void StoreAndAttend(LayerId layer, const LayerWeights& weights, RowBlock block);

  int q_width() const { return step_.spec.QueryHeads(heads_) * heads_.head_dim; }
  int kv_width() const { return heads_.kv_heads * heads_.head_dim; }

  Step& step_;
  const float* inv_freq_;              // of all rotations
  std::vector<double> score_factors_;  // [rotation]
  HeadShape heads_;                    // the layer's
};

}  // namespace moed
