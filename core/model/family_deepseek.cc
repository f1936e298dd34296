// DeepSeekMoE-16B (the first one): leading dense layers, shared experts without a gate, probabilities as they are.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config);
  config.Only("head_dim", {spec.hidden / spec.heads});
  config.Only("sliding_window", {});
  config.Only("moe_layer_freq", {1});
  config.Only("scoring_func", {"softmax"});
  config.Known({"auto_map", "aux_loss_alpha", "seq_aux"});
  spec.experts = config.Int("n_routed_experts", 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 18);
  spec.shared_ffn = config.IntOr("n_shared_experts", 0, 0, kMostShared) * spec.expert_ffn;
  ReadLeadingDense(config, spec);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", false);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

}  // namespace

Family DeepSeekFamily() { return {"deepseek", ReadSpec, MlpExpertTensor, TrunkTensors}; }

}  // namespace moed
