// GLM-4.7-Flash: DeepSeek-V3's attention and router, a list of which layers are dense.
#include "core/base/status.h"
#include "core/model/config_reader.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

// mlp_layer_types, or first_k_dense_replace, which says the same of released files.
void ReadDenseLayers(ConfigReader& config, ModelSpec& spec) {
  static constexpr std::string_view kTypes[] = {"dense", "sparse"};
  const bool leading_given = config.Has("first_k_dense_replace");
  const int leading = config.IntOr("first_k_dense_replace", 1, 0, spec.layers);
  std::vector<std::string> leading_dense;
  for (int layer = 0; layer < spec.layers; ++layer) leading_dense.emplace_back(kTypes[layer < leading ? 0 : 1]);
  const std::vector<std::string> types = config.StringsOr("mlp_layer_types", spec.layers, kTypes, leading_dense);
  if (leading_given && types != leading_dense) {
    config.Fail(InvalidArgument("config.json: mlp_layer_types contradicts first_k_dense_replace = ", leading));
  }
  const int dense_ffn = config.Int("intermediate_size", 1, 1 << 20);
  for (int layer = 0; layer < spec.layers; ++layer) {
    spec.moe[layer] = types[layer] == kTypes[1];
    if (!spec.moe[layer]) spec.dense_ffn = dense_ffn;
  }
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.latent = true});
  config.Only("sliding_window", {});
  config.Only("scoring_func", {"sigmoid"});
  config.Only("topk_method", {"noaux_tc"});
  config.Known({"num_nextn_predict_layers", "num_mtp_layers", "pretraining_tp"});
  spec.rope_interleaved = config.BoolOr("rope_interleave", true);
  spec.experts = config.Int("n_routed_experts", 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 18);
  spec.shared_ffn = config.Int("n_shared_experts", 0, kMostShared) * spec.expert_ffn;
  ReadDenseLayers(config, spec);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", true);
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = true;
  spec.router_groups = config.IntOr("n_group", 1, 1, kMostGroups);
  spec.router_kept_groups = config.IntOr("topk_group", 1, 1, kMostGroups);
  spec.router_group_rank = spec.router_groups > 1 ? GroupRank::kTwoLargestKeys : GroupRank::kLargestKey;
  spec.router_epsilon = 1e-20;
  spec.router_scale = config.NumberOr("routed_scaling_factor", 1.8, 1e-3, 1e3);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

}  // namespace

Family Glm4MoeLiteFamily() {
  return {"glm4_moe_lite", ReadSpec, MlpExpertTensor, TrunkTensors, LatentParts, IsBehindTheLastLayer};
}

}  // namespace moed
