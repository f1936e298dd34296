// Qwen1.5-MoE and Qwen2-MoE: a gated shared expert beside the routed ones, biases on q, k and v, layers without experts.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config);
  config.Only("head_dim", {spec.hidden / spec.heads});
  config.IntOr("sliding_window", 0, 0, INT32_MAX);  // counts only with use_sliding_window, which is refused
  ReadSparsity(config, spec);
  spec.qkv_bias = config.BoolOr("qkv_bias", true);
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 20);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", false);
  spec.shared_ffn = config.Int("shared_expert_intermediate_size", 1, 1 << 20);
  spec.shared_gate = true;
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {}); }

}  // namespace

Family Qwen2MoeFamily() { return {"qwen2_moe", ReadSpec, MlpExpertTensor, TrunkTensors}; }

}  // namespace moed
