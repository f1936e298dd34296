// Phi-3.5-MoE and Phi-mini-MoE: a sparsemixer of two experts, layer norms, biases on q, k, v, o and on the head.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.attention_bias = true, .long_rope_magnitudes = true});
  config.Known({"auto_map", "expert_dropout", "input_jitter_noise", "original_max_position_embeddings"});
  const int window = config.IntOr("sliding_window", 0, 1, INT32_MAX);
  if (window > 0 && window < spec.max_positions) spec.windows.assign(spec.layers, window);
  spec.qkv_bias = spec.o_bias = config.BoolOr("attention_bias", false);
  spec.head_bias = config.BoolOr("lm_head_bias", false);
  spec.layer_norm = true;
  if (spec.top_k != 2)
    config.Fail(InvalidArgument("config.json: num_experts_per_tok = ", spec.top_k, " is not supported; allowed: 2"));
  spec.experts = config.Int(config.Spelling("num_local_experts", "num_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("intermediate_size", 1, 1 << 20);
  spec.router_scoring = RouterScoring::kSparsemixer;
  spec.router_jitter = config.NumberOr("router_jitter_noise", 0.01, 0, 1);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.block = kSparseBlock}); }

}  // namespace

Family PhiMoeFamily() { return {"phimoe", ReadSpec, SparseBlockExpertTensor, TrunkTensors}; }

}  // namespace moed
