// GLM-4.5V and GLM-4.6V, the text part: GLM-4.5-Air whose positions have three numbers, which are one in a text. Whole
// checkpoints see pictures as well; those tensors are left out.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr std::string_view kText = "glm4v_moe_text", kWhole = "glm4v_moe";

// What the text's and the whole configuration may both have.
void KnowPictures(ConfigReader& config) {
  config.Known({"image_end_token_id", "image_start_token_id", "image_token_id", "video_end_token_id", "video_start_token_id",
                "video_token_id"});
}

absl::StatusOr<ModelSpec> ReadText(ConfigReader config, bool tied, std::string_view generation_config) {
  ModelSpec spec = ReadDecoder(config, {.attention_bias = true, .partial_rotary = 0.5, .mrope = true});
  config.Only("model_type", {kText});
  spec.tied_embeddings |= tied;  // transformers heeds either
  config.Only("sliding_window", {});
  config.Only("use_qk_norm", {false});
  config.Known({"num_nextn_predict_layers", "num_mtp_layers"});
  KnowPictures(config);
  spec.qkv_bias = config.BoolOr("attention_bias", true);
  ReadRoutedExperts(config, spec);
  ReadLeadingDense(config, spec, "first_k_dense_replace", 1);
  ReadCorrectedRouter(config, spec, 1.0);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  if (config.String("model_type") != kWhole) return ReadText(std::move(config), false, generation_config);
  const bool tied = config.BoolOr("tie_word_embeddings", false);
  KnowPictures(config);
  config.Known({"vision_config", "bos_token_id", "eos_token_id"});
  MOED_ASSIGN_OR_RETURN(ConfigReader text, config.Object("text_config"));
  MOED_RETURN_IF_ERROR(config.Finish());
  return ReadText(std::move(text), tied, generation_config);
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

bool IsUnused(const ModelSpec& spec, std::string_view name) {
  return IsBehindTheLastLayer(spec, name) || name.starts_with("model.visual.");
}

}  // namespace

Family Glm4vMoeFamily() {
  return {kText, ReadSpec, MlpExpertTensor, TrunkTensors, nullptr, IsUnused, kWhole, "model.language_model."};
}

}  // namespace moed
