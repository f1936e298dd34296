// The blocks of a prefix-LM (PrefixShape): x += norm(o(attention(qkv(x)))), x += norm(down(silu(up x))) of layers without
// experts, and what stands before and behind the layers.
#pragma once

#include "core/model/kv_runs.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class PrefixLmBlock {
 public:
  explicit PrefixLmBlock(Step& step) : step_(step) {}

  // What the batch's chunks that begin a sequence have of a prefix.
  void FindPrefixes();
  // The rows of the residual stream get the embeddings of their positions, of `matrix`.
  void AddPositions(const MatrixView& matrix);
  void RunAttention(LayerId layer, const LayerWeights& weights);
  void RunDense(LayerId layer, const LayerWeights& weights);
  // silu(last_project x) of rows (rows, hidden), at most a block, in scratch.projected.
  const float* Project(const Weights& weights, const float* x, int rows);

 private:
  AttentionShape Shape() const;
  // The residual stream's rows of a block as they are.
  Activations Input(RowBlock block, std::initializer_list<FormatId> formats) const;
  // The block's rows of the residual stream get the norm of scratch.projected.
  void AddNormed(const float* weight, const float* bias, RowBlock block);

  Step& step_;
};

}  // namespace moed
