// DeepSeek-V3, R1 and, with the same tensors under another model_type, Kimi K2 and the text part of K2.5: multi-head latent
// attention, leading dense layers, a shared expert, sigmoid scores with a correction among the best groups. Layers behind the
// last one predict further tokens and are left out.
#include <algorithm>

#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr std::string_view kKimi = "kimi_k2", kWholeKimi = "kimi_k25";

absl::StatusOr<ModelSpec> ReadText(ConfigReader config, std::string_view generation_config) {
  ModelSpec spec = ReadDecoder(config, {.latent = true});
  config.Only("sliding_window", {});
  config.Only("moe_layer_freq", {1});
  config.Only("scoring_func", {"sigmoid"});
  config.Only("topk_method", {"noaux_tc"});
  config.Known({"auto_map", "aux_loss_alpha", "ep_size", "num_nextn_predict_layers", "num_mtp_layers", "seq_aux"});
  spec.rope_interleaved = config.BoolOr("rope_interleave", true);
  ReadRoutedExperts(config, spec);
  ReadLeadingDense(config, spec);
  ReadCorrectedRouter(config, spec, 2.5, /*groups_are_required=*/true);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  return ReadText(std::move(config), generation_config);
}

// The text part of a whole checkpoint says that it is DeepSeek-V3 or Kimi K2.
absl::StatusOr<ModelSpec> ReadWholeKimi(ConfigReader config, std::string_view generation_config) {
  config.Only("tie_word_embeddings", {false});
  config.Known({"auto_map", "bos_token_id", "eos_token_id", "ignore_index", "image_token_id", "media_placeholder_token_id",
                "projection_hidden_size", "projection_layer_norm_eps", "use_unified_vision_chunk", "video_placeholder",
                "video_token_id", "vision_config", "vision_end_token_id", "vision_start_token_id"});
  MOED_ASSIGN_OR_RETURN(ConfigReader text, config.Object("text_config"));
  MOED_RETURN_IF_ERROR(config.Finish());
  text.Only("model_type", {kKimi, "deepseek_v3"});
  MOED_ASSIGN_OR_RETURN(ModelSpec spec, ReadText(std::move(text), generation_config));
  spec.family = kKimi;
  return spec;
}

absl::StatusOr<ModelSpec> ReadKimi(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  return config.String("model_type") == kWholeKimi ? ReadWholeKimi(std::move(config), generation_config)
                                                   : ReadText(std::move(config), generation_config);
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

bool IsUnusedOfKimi(const ModelSpec& spec, std::string_view name) {
  static constexpr std::string_view kOthers[] = {"vision_tower.", "mm_projector.", "model.vision_tower.", "model.mm_projector."};
  return IsBehindTheLastLayer(spec, name) ||
         std::ranges::any_of(kOthers, [&](std::string_view other) { return name.starts_with(other); });
}

// As released; transformers has "model." before "language_model.".
constexpr NameBeginning kWholeNames[] = {{"language_model.", ""}};

}  // namespace

Family DeepSeekV3Family() { return {"deepseek_v3", ReadSpec, MlpExpertTensor, TrunkTensors, LatentParts, IsBehindTheLastLayer}; }
Family KimiK2Family() {
  return {kKimi,          ReadKimi,   MlpExpertTensor,         TrunkTensors, LatentParts,
          IsUnusedOfKimi, kWholeKimi, "model.language_model.", kWholeNames};
}

}  // namespace moed
