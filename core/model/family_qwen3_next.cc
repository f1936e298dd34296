// Qwen3-Next: three of four layers are Gated DeltaNets, the others have gated attention; norms count from 0. Queries, keys,
// values and gates of a key head stand together.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/delta_net_checkpoint.h"
#include "core/model/families.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.partial_rotary = 0.25, .layer_types = true});
  ReadDeltaNet(config, spec);
  ReadGatedModel(config, spec);
  ReadSparsity(config, spec);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", true);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.norms = Spelling::kLessOne}); }

void AddProjections(const ModelSpec& spec, int layer, std::vector<TensorPart>& parts) {
  const DeltaNetShape& shape = *spec.delta_net;
  const int heads = shape.value_heads / shape.key_heads;  // of a key head
  const int keys = shape.key_dim, values = heads * shape.value_dim, group = 2 * keys + 2 * values;
  const std::string prefix = DeltaNetPrefix(layer);
  const auto add = [&](const char* name, const char* whole, int first, int rows, int apart) {
    parts.push_back(PartOf(StrCat(prefix, name, ".weight"), shape.key_heads * rows, spec.hidden,
                           {StrCat(prefix, whole, ".weight"), shape.key_heads * apart, first, rows, apart}));
  };
  add("in_proj_q", "in_proj_qkvz", 0, keys, group);
  add("in_proj_k", "in_proj_qkvz", keys, keys, group);
  add("in_proj_v", "in_proj_qkvz", 2 * keys, values, group);
  add("in_proj_z", "in_proj_qkvz", 2 * keys + values, values, group);
  add("in_proj_b", "in_proj_ba", 0, heads, 2 * heads);
  add("in_proj_a", "in_proj_ba", heads, heads, 2 * heads);
}

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts = DeltaNetParts(spec);
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (spec.IsRecurrent(LayerId(layer))) AddProjections(spec, layer, parts);
  }
  return parts;
}

bool IsUnused(const ModelSpec&, std::string_view name) { return IsMultiTokenPrediction(name); }

}  // namespace

Family Qwen3NextFamily() { return {"qwen3_next", ReadSpec, MlpExpertTensor, TrunkTensors, Parts, IsUnused}; }

}  // namespace moed
