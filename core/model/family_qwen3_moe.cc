// Qwen3-MoE: RMS norm over each head of q and k, a head_dim of its own, no shared expert.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.attention_bias = true});
  config.IntOr("sliding_window", 0, 0, INT32_MAX);  // counts only with use_sliding_window, which is refused
  config.Only("qkv_bias", {false});                 // this and the next two: of Qwen3-Coder
  config.Only("use_qk_norm", {true});
  config.Only("shared_expert_intermediate_size", {0});
  ReadSparsity(config, spec);
  spec.qkv_bias = spec.o_bias = config.BoolOr("attention_bias", false);
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 20);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", false);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {}); }

}  // namespace

Family Qwen3MoeFamily() { return {"qwen3_moe", ReadSpec, MlpExpertTensor, TrunkTensors}; }

}  // namespace moed
