// Qwen3-VL and Qwen3-Omni with experts, the text part: Qwen3-MoE whose positions have three numbers, which are one in a text, so
// that its heads turn as they do elsewhere. The experts of a layer may be one tensor. Whole checkpoints
// see, hear and speak as well; those tensors are left out.
#include <algorithm>

#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr std::string_view kVision = "qwen3_vl_moe_text", kWholeVision = "qwen3_vl_moe";
constexpr std::string_view kOmni = "qwen3_omni_moe_text", kWholeOmni = "qwen3_omni_moe";

absl::StatusOr<ModelSpec> ReadText(ConfigReader config, std::optional<bool> tied, std::string_view generation_config) {
  ModelSpec spec = ReadDecoder(config, {.attention_bias = true, .mrope = true});
  const bool omni = spec.family == kOmni;
  config.Only("model_type", {kVision, kOmni});
  if (tied) spec.tied_embeddings = *tied;
  config.IntOr("sliding_window", 0, 0, INT32_MAX);  // counts only with use_sliding_window, which is refused
  config.Only("qkv_bias", {false});
  config.Only("shared_expert_intermediate_size", {0});
  config.Only("use_qk_norm", {true});
  ReadSparsity(config, spec);
  spec.qkv_bias = spec.o_bias = config.BoolOr("attention_bias", false);
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 20);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", true);
  if (!omni) config.Only("norm_topk_prob", {true});  // transformers divides whatever it says
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

// What a configuration says of pictures and sounds.
void KnowOtherParts(ConfigReader& config) {
  config.Known({"audio_config", "audio_end_token_id", "audio_start_token_id", "audio_token_id", "bos_token_id", "eos_token_id",
                "image_token_id", "position_id_per_seconds", "seconds_per_chunk", "user_token_id", "video_token_id",
                "vision_config", "vision_end_token_id", "vision_start_token_id"});
}

absl::StatusOr<ModelSpec> ReadWhole(ConfigReader config, std::string_view generation_config) {
  const bool tied = config.BoolOr("tie_word_embeddings", false);
  KnowOtherParts(config);
  config.Known({"model_type"});
  MOED_ASSIGN_OR_RETURN(ConfigReader text, config.Object("text_config"));
  MOED_RETURN_IF_ERROR(config.Finish());
  return ReadText(std::move(text), tied, generation_config);
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  const std::string type = config.String("model_type");
  if (type == kWholeVision) return ReadWhole(std::move(config), generation_config);
  if (type != kWholeOmni) return ReadText(std::move(config), std::nullopt, generation_config);
  KnowOtherParts(config);
  config.Known({"assistant_token_id", "code2wav_config", "enable_audio_output", "im_end_token_id", "im_start_token_id",
                "system_token_id", "talker_config", "tie_word_embeddings", "tts_bos_token_id", "tts_eos_token_id",
                "tts_pad_token_id"});
  MOED_ASSIGN_OR_RETURN(ConfigReader thinker, config.Object("thinker_config"));
  MOED_RETURN_IF_ERROR(config.Finish());
  return ReadWhole(std::move(thinker), generation_config);
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {}); }

// As released, and as transformers 5 saves them; where those have one shape, as released.
std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> released, saved = FusedMlpExperts(spec);
  for (const LayerId layer : spec.MoeLayers()) {
    AddTransposedExperts(spec, layer, MlpExpertsPrefix(layer), MlpExpertTensor, released);
  }
  for (size_t i = 0; i < saved.size(); ++i) {
    if (saved[i].whole_shape != released[i].whole_shape) released.push_back(std::move(saved[i]));
  }
  return released;
}

bool IsUnused(const ModelSpec&, std::string_view name) {
  static constexpr std::string_view kOthers[] = {"model.visual.", "thinker.visual.", "thinker.audio_tower.", "talker.",
                                                 "code2wav."};
  return std::ranges::any_of(kOthers, [&](std::string_view other) { return name.starts_with(other); });
}

constexpr NameBeginning kThinkerNames[] = {{"thinker.lm_head.", "lm_head."}};

}  // namespace

Family Qwen3VlMoeFamily() {
  return {kVision, ReadSpec, MlpExpertTensor, TrunkTensors, Parts, IsUnused, kWholeVision, "model.language_model."};
}

Family Qwen3OmniMoeFamily() {
  return {kOmni, ReadSpec, MlpExpertTensor, TrunkTensors, nullptr, IsUnused, kWholeOmni, "thinker.model.", kThinkerNames};
}

}  // namespace moed
