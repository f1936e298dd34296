// afmoe (Arcee's Trinity): gated attention, norms before and behind its blocks, sigmoid scores with a correction. Which layers
// see all has no key: it is every fourth, as in the released models, whose embeddings are scaled.
#include <cmath>

#include "core/model/decoder_config.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

constexpr GgufName kNames[] = {
    {"attention_gate", "attn_gate.weight"},
    {"attn_post_norm", "post_attention_norm.weight"},
    {"ffn_post_norm", "post_ffw_norm.weight"},
};

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "afmoe", {.window = true, .gating = true, .weights_scale = true});
  const int window = reader.Int("attention.sliding_window", 1, INT32_MAX);
  for (int layer = 1; layer <= spec.layers; ++layer) spec.windows.push_back(layer % 4 == 0 ? 0 : window);
  RotateWindowsAlone(spec);
  spec.attention_gate = true;
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.norms = ModelSpec::Norms::kBoth;
  spec.embedding_scale = std::sqrt(spec.hidden);
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_count", 0, kMostShared) * spec.expert_ffn;
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  ReadCorrectedSigmoid(reader, spec);
  spec.router_epsilon = 1e-20;
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture AfmoeArchitecture() {
  return {.name = "afmoe", .model_type = "afmoe", .read_spec = ReadSpec, .own_names = kNames};
}

}  // namespace moed
