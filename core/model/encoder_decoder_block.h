// Attention of an encoder-decoder. In an encoder's layers every token of a source attends to all of them. A decoder's attend to
// what the decoder has read and then to the source: x += o(attention(qkv(norm(x)))) each.
//
// A sequence's positions are those of its source, then the decoder's. What a layer of the decoder keeps of the former are keys
// and values of what the encoder made of them; they are computed once.
#pragma once

#include "core/model/kv_runs.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class EncoderDecoderBlock {
 public:
  explicit EncoderDecoderBlock(Step& step) : step_(step) {}

  // The batch's chunks are whole sources.
  void RunEncoder(LayerId layer, const LayerWeights& weights);
  // After the encoder's last layer: what the decoder attends to of the batch's sources.
  void KeepSources(const Weights& weights);
  // The batch's chunks are the decoder's.
  void RunDecoder(LayerId layer, const LayerWeights& weights);

 private:
  // Of which layer's pages, and how rows attend.
  struct Pass {
    LayerId layer;
    RowsSee see = RowsSee::kUpToTheirOwn;
    const float* bias = nullptr;  // null: heads add nothing to their scores
  };
  LayerId FirstKept() const { return LayerId(step_.spec.encoder->layers); }
  AttentionShape ShapeOf(const float* bias) const;
  int width() const { return step_.spec.heads * step_.spec.head_dim; }
  // Of a prepared block.
  void Project(const Activations& input, const MatrixView& weights, std::span<float> to);
  void Store(const Pass& pass, RowBlock block);
  void Attend(const Pass& pass, RowBlock block);
  void AttendToSource(LayerId layer, const CrossWeights& weights, RowBlock block);

  Step& step_;
};

}  // namespace moed
