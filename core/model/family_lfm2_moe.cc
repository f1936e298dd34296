// LFM2-MoE: most layers are short convolutions, gated before and after; the others have attention with norms of each head.
// Sigmoid scores with a correction; the leading layers have no experts.
#include <algorithm>

#include "core/base/status.h"
#include "core/kernels/recurrence.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

constexpr std::string_view kBlock = "feed_forward";
constexpr LayerKind kKinds[] = {{"conv", true}, {"full_attention", false}};

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  const std::string_view tied = config.Spelling("tie_word_embeddings", "tie_embedding");
  ModelSpec spec = ReadDecoder(config, {.norm_eps = "norm_eps", .tied = config.BoolOr(tied, true), .layer_types = true});
  ReadRecurrentLayers(config, spec, kKinds);
  spec.short_convolution = {.taps = config.Int("conv_L_cache", 2, kMostTaps)};
  config.Only("conv_bias", {false});
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 20);
  ReadLeadingDense(config, spec, "num_dense_layers", 2);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", true);
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = config.BoolOr("use_expert_bias", true);
  spec.router_epsilon = 1e-6;
  spec.router_scale = config.NumberOr("routed_scaling_factor", 1, 1e-3, 1e3);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  DecoderNames names = {.block = kBlock,
                        .correction = "expert_bias",
                        .q_norm = "q_layernorm",
                        .k_norm = "k_layernorm",
                        .attention_norm = "operator_norm",
                        .ffn_norm = "ffn_norm",
                        .final_norm = "embedding_norm",
                        .o = "out_proj",
                        .dense = kBlock};
  std::copy_n(kSparseProjections, kExpertParts, names.projections);
  return DecoderTensors(spec, names);
}

std::string ExpertTensor(LayerId layer, int expert, ExpertPart part) {
  return ExpertTensorName(layer, kBlock, expert, kSparseProjections[static_cast<size_t>(part)]);
}

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (!spec.IsRecurrent(LayerId(layer))) continue;
    const std::string prefix = StrCat("model.layers.", layer, ".conv.");
    AddShortConvolutionProjections(spec.hidden, prefix + "in_proj.", parts);
    parts.push_back(TapsOf(prefix + "conv.taps", prefix + "conv.weight", spec.hidden, spec.short_convolution->taps));
  }
  return parts;
}

}  // namespace

Family Lfm2MoeFamily() { return {"lfm2_moe", ReadSpec, ExpertTensor, TrunkTensors, Parts}; }

}  // namespace moed
