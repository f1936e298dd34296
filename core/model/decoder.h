// The one decoder of all families; what a family lacks is absent from its spec and weights.
#pragma once

#include "core/model/attention_block.h"
#include "core/model/encoder_decoder_block.h"
#include "core/model/ffn_block.h"
#include "core/model/gated_delta_block.h"
#include "core/model/latent_attention_block.h"
#include "core/model/mamba2_block.h"
#include "core/model/model.h"
#include "core/model/prefix_lm_block.h"
#include "core/model/short_convolution_block.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class Decoder final : public Model {
 public:
  Decoder(const ModelSpec& spec, const ModelOptions& options, Weights weights, ExpertFormats expert_formats,
          InputForms expert_inputs, OwnScratch scratch, ComputeBackend& backend, KvPool& kv, Trace* trace,
          ComputeBackend* processor);

  const ModelSpec& spec() const override { return spec_; }
  uint64_t trunk_bytes() const override { return weights_.bytes; }
  EmbeddingStats embedding_stats() const override;
  void Forward(std::span<SequenceChunk> chunks, ExpertProvider& provider, LogitsSink sink, StepWatcher* watcher) override;
  void GateProbabilities(LayerId layer, std::span<const float> hidden, std::span<float> probabilities) override;

 private:
  // Whether this step's products are those of halves.
  void ChooseProducts();
  // The memory that the step's rows are in: the model's own, or lent.
  absl::Status PlaceRows(ExpertProvider& provider);
  void TellTokens(ExpertProvider& provider);
  // What the decoder attends to of the sources among the chunks.
  void RunEncoder(std::span<SequenceChunk> chunks, ExpertProvider& provider, StepWatcher* watcher);
  // The batch's rows from their tokens through layers [first, end). False where there is no memory for them: nothing has begun.
  bool RunLayers(int first, int end, std::span<SequenceChunk> chunks, ExpertProvider& provider, StepWatcher* watcher);
  // Chunks leave the batch of whose tokens a row could not be read.
  void ReadEmbedding();
  void Embed();
  // Before RunLayer, the layer before having run.
  void PreviewGate(LayerId layer, ExpertProvider& provider);
  void RunLayer(LayerId layer, ExpertProvider& provider);
  void RunMixer(LayerId layer, const LayerWeights& weights);
  // After the last layer: the sequence has the chunk's positions, or lost what the chunk overwrote before it failed.
  void SettleKv(const SequenceChunk& chunk);
  // Waits for everything that was enqueued. The backend's error.
  absl::Status ComputeLogits(LogitsSink sink);
  // Logits of `rows`, at most scratch.logits_rows of them.
  absl::Status ProjectLogits(std::span<const int32_t> rows, LogitsSink sink);

  const ModelSpec spec_;
  const Weights weights_;
  const ModelOptions options_;
  const OwnScratch own_scratch_;
  Step step_;
  const TokenRows own_rows_;
  AttentionBlock attention_;
  LatentAttentionBlock latent_attention_;  // in its place where the spec has it
  EncoderDecoderBlock encoder_decoder_;    // the same
  PrefixLmBlock prefix_lm_;                // the same
  GatedDeltaBlock delta_;
  Mamba2Block mamba2_;
  ShortConvolutionBlock short_convolution_;
  FfnBlock ffn_;
};

}  // namespace moed
