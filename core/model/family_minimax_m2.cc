// MiniMax-M2: sigmoid scores with a correction, RMS norm over the whole width of q and of k, a part of each head rotated.
#include <vector>

#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr int kSoftmax = 1;  // in attn_type_list; linear attention is 0

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.partial_rotary = 1.0, .rotary_dims = "rotary_dim"});
  config.Only("sliding_window", {});
  config.Only("use_qk_norm", {true});
  config.Only("qk_norm_type", {"per_layer"});
  config.Only("use_routing_bias", {true});
  config.Only("scoring_func", {"sigmoid"});
  config.Only("shared_intermediate_size", {0});
  config.Only("attn_type_list", {nlohmann::json(std::vector<int>(spec.layers, kSoftmax))});
  for (const char* beta : {"layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta"}) {
    config.Only(beta, {1});
  }
  config.Known({"mlp_intermediate_size", "shared_moe_mode"});  // of shared experts, of which there are none
  config.Known({"auto_map", "use_mtp", "num_mtp_modules", "mtp_transformer_layers"});  // the released files have no such layers
  spec.qk_norm = ModelSpec::QkNorm::kWhole;
  spec.experts = config.Int(config.Spelling("num_local_experts", "num_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("intermediate_size", 1, 1 << 20);
  spec.norm_topk_prob = true;
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = true;
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(spec, {.block = kSparseBlock, .correction = "e_score_correction_bias"});
}

}  // namespace

Family MiniMaxM2Family() {
  return {"minimax_m2", ReadSpec, SparseBlockExpertTensor, TrunkTensors, nullptr, IsBehindTheLastLayer};
}

}  // namespace moed
