// GLM-4.5 and 4.6: sigmoid scores with a correction, leading dense layers, shared experts, a part of each head rotated. Layers
// behind the last one predict further tokens and are left out.
#include "core/base/status.h"
#include "core/model/config_reader.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.attention_bias = true, .partial_rotary = 0.5});
  config.Only("sliding_window", {});
  config.Known({"num_nextn_predict_layers", "num_mtp_layers"});
  spec.qkv_bias = config.BoolOr("attention_bias", false);
  if (config.BoolOr("use_qk_norm", false)) spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.experts = config.Int("n_routed_experts", 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 18);
  spec.shared_ffn = config.Int("n_shared_experts", 0, kMostShared) * spec.expert_ffn;
  ReadLeadingDense(config, spec);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", true);
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = true;
  spec.router_groups = config.IntOr("n_group", 1, 1, kMostGroups);
  spec.router_kept_groups = config.IntOr("topk_group", 1, 1, kMostGroups);
  spec.router_group_rank = spec.router_groups > 1 ? GroupRank::kTwoLargestKeys : GroupRank::kLargestKey;
  spec.router_epsilon = 1e-20;
  spec.router_scale = config.NumberOr("routed_scaling_factor", 1.0, 1e-3, 1e3);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

}  // namespace

Family Glm4MoeFamily() { return {"glm4_moe", ReadSpec, MlpExpertTensor, TrunkTensors, nullptr, IsBehindTheLastLayer}; }

}  // namespace moed
