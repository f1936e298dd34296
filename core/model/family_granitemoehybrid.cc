// Granite 4 with experts: most layers are Mamba-2, the others have attention, which turns its heads only where the configuration
// says so; a shared expert beside the experts, which are those of Granite 3 MoE.
#include "core/base/status.h"
#include "core/kernels/recurrence.h"
#include "core/model/families.h"
#include "core/model/granite_checkpoint.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

using Json = nlohmann::json;

// As published, and as transformers 5 writes them.
constexpr LayerKind kKinds[] = {{"mamba", true}, {"attention", false}, {"linear_attention", true}, {"full_attention", false}};

void ReadMamba2(ConfigReader& config, ModelSpec& spec) {
  const int width = config.IntOr("mamba_expand", 2, 1, 64) * spec.hidden;
  Mamba2Shape shape = {.heads = config.IntOr("mamba_n_heads", 128, 1, 1024),
                       .groups = config.IntOr("mamba_n_groups", 1, 1, 1024),
                       .state_dim = config.IntOr("mamba_d_state", 256, 1, 1024),
                       .taps = config.IntOr("mamba_d_conv", 4, 2, kMostTaps),
                       .convolution_bias = config.BoolOr("mamba_conv_bias", true)};
  if (width % shape.heads != 0) {
    config.Fail(
        InvalidArgument("config.json: mamba_n_heads = ", shape.heads, " does not divide mamba_expand * hidden_size = ", width));
  }
  shape.head_dim = width / shape.heads;
  spec.mamba2 = shape;
  config.Only("mamba_d_head", {"auto", shape.head_dim});
  config.Only("mamba_proj_bias", {false});
  config.Only("time_step_limit", {Json::array({0.0, Json::object({{"__float__", "Infinity"}})})});  // as transformers 5 writes it
  config.Known({"mamba_chunk_size"});
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.layer_types = true});
  ReadRecurrentLayers(config, spec, kKinds);
  ReadMamba2(config, spec);
  ReadGranite(config, spec);
  config.Only("position_embedding_type", {"nope", "rope"});
  spec.unrotated = !config.Has("position_embedding_type") || config.String("position_embedding_type") != "rope";
  spec.shared_ffn = config.IntOr("shared_intermediate_size", 1024, 1, 1 << 20);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, kGraniteNames); }

void AddMamba2(const ModelSpec& spec, int layer, std::vector<TensorPart>& parts) {
  const Mamba2Shape& shape = *spec.mamba2;
  const std::string prefix = StrCat("model.layers.", layer, ".mamba.");
  AddMamba2Projections(shape, spec.hidden, prefix + "in_proj.", parts);
  parts.push_back(TapsOf(prefix + "conv1d.taps", prefix + "conv1d.weight", shape.ConvolvedWidth(), shape.taps));
}

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts = GraniteExpertParts(spec);
  for (int layer = 0; layer < spec.layers; ++layer) {
    AddGraniteShared(spec, layer, parts);
    if (spec.IsRecurrent(LayerId(layer))) AddMamba2(spec, layer, parts);
  }
  return parts;
}

}  // namespace

Family GraniteMoeHybridFamily() { return {"granitemoehybrid", ReadSpec, MlpExpertTensor, TrunkTensors, Parts}; }

}  // namespace moed
