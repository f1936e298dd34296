// Solar Open: sigmoid scores with a correction and shared experts, in every layer.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr double kTheta = 1e6;  // transformers' where no key says it

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  config.Int("num_key_value_heads", 1, 1024);  // absent, it would be 8
  config.Int("head_dim", 2, 1024);             // absent, it would be 128
  ModelSpec spec = ReadDecoder(config, {.attention_bias = true, .rope_theta = kTheta});
  spec.qkv_bias = config.BoolOr("attention_bias", false);
  config.Only("sliding_window", {});
  config.Only("first_k_dense_replace", {0});
  config.Only("use_qk_norm", {false});
  config.Known({"auto_map", "intermediate_size", "num_nextn_predict_layers", "num_mtp_layers"});
  ReadRoutedExperts(config, spec);
  config.Only("num_local_experts", {spec.experts});
  ReadCorrectedRouter(config, spec, 1.0);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

}  // namespace

Family SolarOpenFamily() { return {"solar_open", ReadSpec, MlpExpertTensor, TrunkTensors, nullptr, IsBehindTheLastLayer}; }

}  // namespace moed
