// OLMoE: RMS norm over the whole width of q and of k, experts as wide as intermediate_size says.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config);
  config.Only("head_dim", {spec.hidden / spec.heads});
  config.Only("sliding_window", {});
  spec.qk_norm = ModelSpec::QkNorm::kWhole;
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("intermediate_size", 1, 1 << 20);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", false);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {}); }

}  // namespace

Family OlmoeFamily() { return {"olmoe", ReadSpec, MlpExpertTensor, TrunkTensors}; }

}  // namespace moed
