// Mellum 2: Qwen3-MoE's attention and experts; layers with a window turn by a rotation of their own, some have no experts.
#include "absl/strings/match.h"
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

// transformers' where rope_parameters is absent.
constexpr double kFullTheta = 500000, kSlidingTheta = 10000;

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.layer_types = true, .use_sliding_window = true, .rotations = true});
  ReadWindows(config, spec, std::vector<std::string>(spec.layers, "full_attention"));
  config.Only("rope_theta", {});
  config.Only("rope_scaling", {});
  ReadLayerRotations(config, spec, kFullTheta, kSlidingTheta);
  ReadMlpTypes(config, spec, LeadingDenseTypes(spec, 0));
  config.Known({"num_nextn_predict_layers", "num_mtp_layers", "mtp_layer_types", "mtp_mlp_layer_types"});
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 20);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", true);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {}); }

// They predict further tokens.
bool IsUnused(const ModelSpec&, std::string_view name) { return absl::StartsWith(ToAbsl(name), "mtp."); }

}  // namespace

Family MellumFamily() { return {"mellum", ReadSpec, MlpExpertTensor, TrunkTensors, nullptr, IsUnused}; }

}  // namespace moed
