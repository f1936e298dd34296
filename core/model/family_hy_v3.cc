// Hy3: per-head norms of queries and keys, leading dense layers, a shared expert, sigmoid scores with a correction. Layers behind
// the last one predict further tokens and are left out.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  constexpr int kMostShared = 64;
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.rope_theta = 11158840.0});
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int(config.Spelling("moe_intermediate_size", "expert_hidden_dim"), 1, 1 << 18);
  spec.shared_ffn = config.Int("num_shared_experts", 0, kMostShared) * spec.expert_ffn;
  ReadDenseLayers(config, spec);
  spec.norm_topk_prob = true;
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = true;
  spec.router_epsilon = 1e-20;
  spec.router_scale = config.Number("router_scaling_factor", 1e-3, 1e3);
  config.Only("sliding_window", {});
  for (const char* const always : {"qk_norm", "route_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias"}) {
    config.Only(always, {true});
  }
  config.Known({"enable_attention_fp32_softmax", "enable_lm_head_fp32", "enable_moe_fp32_combine", "use_grouped_mm",
                "num_nextn_predict_layers", "num_mtp_layers", "eod_token_id"});
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(spec, {.router = "router.gate", .correction = "expert_bias", .shared = "shared_mlp"});
}

}  // namespace

Family HyV3Family() { return {"hy_v3", ReadSpec, MlpExpertTensor, TrunkTensors, nullptr, IsBehindTheLastLayer}; }

}  // namespace moed
