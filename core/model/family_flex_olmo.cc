// FlexOlmo: OLMoE whose blocks read the residual stream as it is; what they put out is normed.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config);
  config.Only("sliding_window", {});
  spec.qk_norm = ModelSpec::QkNorm::kWhole;
  spec.norms = ModelSpec::Norms::kBehind;
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("intermediate_size", 1, 1 << 20);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", false);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

constexpr OwnName kNames[] = {
    {"attn_post_norm", "post_attention_layernorm.weight"},
    {"ffn_post_norm", "post_feedforward_layernorm.weight"},
};

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.own = kNames}); }

}  // namespace

Family FlexOlmoFamily() { return {"flex_olmo", ReadSpec, MlpExpertTensor, TrunkTensors, FusedMlpExperts}; }

}  // namespace moed
