// Granite 3 MoE: multipliers of embeddings, attention, residuals and logits; all experts of a layer in one tensor, gate before
// up.
#include "core/base/status.h"
#include "core/model/families.h"
#include "core/model/granite_checkpoint.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config);
  config.Only("position_embedding_type", {"rope"});
  ReadGranite(config, spec);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, kGraniteNames); }

}  // namespace

Family GraniteMoeFamily() { return {"granitemoe", ReadSpec, MlpExpertTensor, TrunkTensors, GraniteExpertParts}; }

}  // namespace moed
