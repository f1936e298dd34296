// EXAONE-MoE (K-EXAONE): norms of each head, sigmoid scores with a correction, shared experts, leading dense layers. Where layers
// have a window, heads turn in those alone. Layers that predict further tokens are left out.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;
constexpr const char* kWindow = "sliding_window";
constexpr const char* kPattern = "sliding_window_pattern";  // counts where there are no layer_types

// Without a window every layer sees all, and turns.
void ReadLayers(ConfigReader& config, ModelSpec& spec) {
  if (!config.Has(kWindow) && !config.IsNull(kWindow)) config.Fail(InvalidArgument("config.json: key ", kWindow, " is missing"));
  const bool slides = config.Has(kWindow);
  std::vector<std::string> types(spec.layers, "full_attention");
  if (config.Has("layer_types")) {
    config.Known({kPattern});
  } else if (slides) {
    const int n = config.IntOr(kPattern, 4, 1, 4096);
    for (int layer = 0; layer < spec.layers; ++layer) {
      if ((layer + 1) % n != 0) types[layer] = "sliding_attention";
    }
  }
  ReadWindows(config, spec, std::move(types));
  if (slides) RotateWindowsAlone(spec);
}

void ReadExperts(ConfigReader& config, ModelSpec& spec) {
  spec.experts = config.Int("num_experts", 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 18);
  spec.shared_ffn = config.IntOr("num_shared_experts", 1, 0, kMostShared) * spec.expert_ffn;
  const int leading = config.IntOr("first_k_dense_replace", 1, 0, spec.layers);
  ReadMlpTypes(config, spec, LeadingDenseTypes(spec, leading));
  config.Only("first_last_k_dense_replace", {leading});
  config.Only("is_moe_layer", {nlohmann::json(spec.moe)});
  config.Only("scoring_func", {"sigmoid"});
  config.Only("topk_method", {"noaux_tc"});
  ReadCorrectedRouter(config, spec, 2.5);
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  config.Int("num_key_value_heads", 1, 1024);  // absent, it would be 32
  ModelSpec spec = ReadDecoder(config, {.layer_types = true});
  ReadLayers(config, spec);
  config.Known({"auto_map", "num_nextn_predict_layers", "num_mtp_layers", "mtp_loss_scaling_factor", "mtp_share_layers"});
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadExperts(config, spec);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(spec, {.correction = "e_score_correction_bias", .shared = "shared_experts"});
}

// They predict further tokens.
bool IsUnused(const ModelSpec&, std::string_view name) { return name.starts_with("mtp."); }

}  // namespace

Family ExaoneMoeFamily() { return {"exaone_moe", ReadSpec, MlpExpertTensor, TrunkTensors, nullptr, IsUnused}; }

}  // namespace moed
