// GLM-4.7-Flash: DeepSeek-V3's attention and router, a list of which layers are dense.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.latent = true});
  config.Only("sliding_window", {});
  config.Only("scoring_func", {"sigmoid"});
  config.Only("topk_method", {"noaux_tc"});
  config.Known({"num_nextn_predict_layers", "num_mtp_layers"});
  spec.rope_interleaved = config.BoolOr("rope_interleave", true);
  ReadRoutedExperts(config, spec);
  ReadDenseLayers(config, spec);
  ReadCorrectedRouter(config, spec, 1.8);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

}  // namespace

Family Glm4MoeLiteFamily() {
  return {"glm4_moe_lite", ReadSpec, MlpExpertTensor, TrunkTensors, LatentParts, IsBehindTheLastLayer};
}

}  // namespace moed
