// Granite 3 MoE with a shared expert beside the experts.
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
  spec.shared_ffn = config.IntOr("shared_intermediate_size", 0, 0, 1 << 20);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, kGraniteNames); }

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts = GraniteExpertParts(spec);
  for (int layer = 0; layer < spec.layers && spec.shared_ffn > 0; ++layer) AddGraniteShared(spec, layer, parts);
  return parts;
}

}  // namespace

Family GraniteMoeSharedFamily() { return {"granitemoeshared", ReadSpec, MlpExpertTensor, TrunkTensors, Parts}; }

}  // namespace moed
