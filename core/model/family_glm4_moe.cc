// GLM-4.5 and 4.6: sigmoid scores with a correction, leading dense layers, shared experts, a part of each head rotated. Layers
// behind the last one predict further tokens and are left out.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.attention_bias = true, .partial_rotary = 0.5});
  config.Only("sliding_window", {});
  config.Known({"num_nextn_predict_layers", "num_mtp_layers"});
  spec.qkv_bias = config.BoolOr("attention_bias", false);
  if (config.BoolOr("use_qk_norm", false)) spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadRoutedExperts(config, spec);
  ReadLeadingDense(config, spec);
  ReadCorrectedRouter(config, spec, 1.0);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

}  // namespace

Family Glm4MoeFamily() { return {"glm4_moe", ReadSpec, MlpExpertTensor, TrunkTensors, nullptr, IsBehindTheLastLayer}; }

}  // namespace moed
