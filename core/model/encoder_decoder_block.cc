#include "core/model/encoder_decoder_block.h"

namespace moed {

AttentionShape EncoderDecoderBlock::ShapeOf(const float* bias) const {
  const ModelSpec& spec = step_.spec;
  return {.heads = spec.heads,
          .kv_heads = spec.kv_heads,
          .head_dim = spec.head_dim,
          .page_tokens = step_.kv.page_tokens(),
          .scale = static_cast<float>(spec.AttentionScale()),
          .kv_format = step_.kv.format(),
          .bias = {bias, spec.encoder->most_distance}};
}

void EncoderDecoderBlock::Project(const Activations& input, const MatrixView& weights, std::span<float> to) {
  MatMulJob jobs[] = {{weights, &input, to.data(), width()}};
  step_.Multiply(jobs);
}

void EncoderDecoderBlock::Store(const Pass& pass, RowBlock block) {
  for (int done = 0; done < block.count;) {
    const size_t from = static_cast<size_t>(done) * width();
    std::span<const KvRun> runs;
    done = PlanRuns(step_, pass.layer, block, done, runs, pass.see);
    step_.backend.StoreKv(ShapeOf(nullptr), runs, &step_.scratch.k[from], &step_.scratch.v[from]);
  }
}

void EncoderDecoderBlock::Attend(const Pass& pass, RowBlock block) {
  Scratch& scratch = step_.scratch;
  for (int done = 0; done < block.count;) {
    const size_t from = static_cast<size_t>(done) * width();
    std::span<const KvRun> runs;
    done = PlanRuns(step_, pass.layer, block, done, runs, pass.see);
    step_.backend.Attention(ShapeOf(pass.bias), runs, &scratch.q[from], &scratch.attended[from], scratch.scores);
  }
}

// Keys and values of all rows are there before the first row attends to them.
void EncoderDecoderBlock::RunEncoder(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "attention", kComputeTrack, layer);
  Scratch& scratch = step_.scratch;
  const Pass pass = {FirstKept(), RowsSee::kTheSource, scratch.encoder_bias.data()};
  step_.ForBlocks([&](RowBlock block) {
    const Activations input = step_.MixerInput(weights, block, {weights.k.format, weights.v.format});
    Project(input, weights.k, scratch.k);
    Project(input, weights.v, scratch.v);
    Store(pass, block);
  });
  step_.ForBlocks([&](RowBlock block) {
    Project(step_.MixerInput(weights, block, {weights.q.format}), weights.q, scratch.q);
    Attend(pass, block);
    step_.ProjectAttended(weights.o, nullptr, block);
  });
}

void EncoderDecoderBlock::KeepSources(const Weights& weights) {
  const TraceSpan span(step_.trace, "attention", kComputeTrack, FirstKept());
  Scratch& scratch = step_.scratch;
  step_.ForBlocks([&](RowBlock block) {
    const CrossWeights& first = weights.layers[FirstKept().value()].cross;
    const Activations input =
        step_.NormalizeAndPrepare(step_.Residual(block), weights.encoder_norm, nullptr, block.count, scratch.normed.data(),
                                  InputForms::Of({first.k.format, first.v.format}), scratch.block_storage);
    for (int layer = FirstKept().value(); layer < step_.spec.layers; ++layer) {
      const CrossWeights& cross = weights.layers[layer].cross;
      Project(input, cross.k, scratch.k);
      Project(input, cross.v, scratch.v);
      Store({LayerId(layer), RowsSee::kTheSource}, block);
    }
  });
}

void EncoderDecoderBlock::RunDecoder(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "attention", kComputeTrack, layer);
  Scratch& scratch = step_.scratch;
  const Pass pass = {layer, RowsSee::kUpToTheirOwn, scratch.decoder_bias.data()};
  step_.ForBlocks([&](RowBlock block) {
    const Activations input = step_.MixerInput(weights, block, {weights.q.format, weights.k.format, weights.v.format});
    MatMulJob jobs[] = {{weights.q, &input, scratch.q.data(), width()},
                        {weights.k, &input, scratch.k.data(), width()},
                        {weights.v, &input, scratch.v.data(), width()}};
    step_.Multiply(jobs);
    Store(pass, block);
    Attend(pass, block);
    step_.ProjectAttended(weights.o, nullptr, block);
    AttendToSource(layer, weights.cross, block);
  });
}

void EncoderDecoderBlock::AttendToSource(LayerId layer, const CrossWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  const Activations input =
      step_.NormalizeAndPrepare(step_.Residual(block), weights.norm, nullptr, block.count, scratch.normed.data(),
                                InputForms::Of({weights.q.format}), scratch.block_storage);
  Project(input, weights.q, scratch.q);
  Attend({layer, RowsSee::kTheSource}, block);
  step_.ProjectAttended(weights.o, nullptr, block);
}

}  // namespace moed
