// DeepSeek-V3, R1 and, with the same tensors under another model_type, Kimi K2: multi-head latent attention, leading dense
// layers, a shared expert, sigmoid scores with a correction among the best groups. Layers behind the last one predict further
// tokens and are left out.
#include "core/base/status.h"
#include "core/model/config_reader.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.latent = true});
  config.Only("sliding_window", {});
  config.Only("moe_layer_freq", {1});
  config.Only("scoring_func", {"sigmoid"});
  config.Only("topk_method", {"noaux_tc"});
  config.Known(
      {"auto_map", "aux_loss_alpha", "ep_size", "num_nextn_predict_layers", "num_mtp_layers", "pretraining_tp", "seq_aux"});
  spec.rope_interleaved = config.BoolOr("rope_interleave", true);
  spec.experts = config.Int("n_routed_experts", 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 18);
  spec.shared_ffn = config.Int("n_shared_experts", 0, kMostShared) * spec.expert_ffn;
  ReadLeadingDense(config, spec);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", true);
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = true;
  spec.router_groups = config.Int("n_group", 1, kMostGroups);
  spec.router_kept_groups = config.Int("topk_group", 1, kMostGroups);
  spec.router_group_rank = spec.router_groups > 1 ? GroupRank::kTwoLargestKeys : GroupRank::kLargestKey;
  spec.router_epsilon = 1e-20;
  spec.router_scale = config.NumberOr("routed_scaling_factor", 2.5, 1e-3, 1e3);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

}  // namespace

Family DeepSeekV3Family() { return {"deepseek_v3", ReadSpec, MlpExpertTensor, TrunkTensors, LatentParts, IsBehindTheLastLayer}; }
Family KimiK2Family() { return {"kimi_k2", ReadSpec, MlpExpertTensor, TrunkTensors, LatentParts, IsBehindTheLastLayer}; }

}  // namespace moed
