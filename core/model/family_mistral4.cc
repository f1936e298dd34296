// Mistral 4: DeepSeek-V3's attention and shared expert with a softmax router; queries grow with their position. Whole checkpoints
// see pictures as well; those tensors are left out.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr std::string_view kText = "mistral4", kWhole = "mistral3";
constexpr NameBeginning kWholeNames[] = {{"language_model.lm_head.", "lm_head."}};

void ReadRouter(ConfigReader& config, ModelSpec& spec) {
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", true);
  SetRouterGroups(spec, config.IntOr("n_group", 1, 1, kMostGroups), config.IntOr("topk_group", 1, 1, kMostGroups));
  spec.router_scale = config.NumberOr("routed_scaling_factor", 1, 1e-3, 1e3);
}

absl::StatusOr<ModelSpec> ReadText(ConfigReader config, std::optional<bool> tied, std::string_view generation_config) {
  ModelSpec spec = ReadDecoder(config, {.partial_rotary = 1, .latent = true, .temperature = true});
  config.Only("model_type", {kText});
  config.Only("sliding_window", {});
  if (tied) spec.tied_embeddings = *tied;
  if (const int rotated = config.Int("qk_rope_head_dim", 2, 1024); spec.rotary_dims != rotated) {
    config.Fail(InvalidArgument("config.json: partial_rotary_factor of rope_parameters says ", spec.rotary_dims,
                                " dimensions of a head, qk_rope_head_dim ", rotated));
  }
  spec.rope_interleaved = config.BoolOr("rope_interleave", true);
  ReadRoutedExperts(config, spec);
  ReadLeadingDense(config, spec);
  ReadRouter(config, spec);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  if (config.String("model_type") != kWhole) return ReadText(std::move(config), std::nullopt, generation_config);
  std::optional<bool> tied;
  if (config.Has("tie_word_embeddings")) tied = config.BoolOr("tie_word_embeddings", false);
  config.Known({"bos_token_id", "eos_token_id", "image_token_id", "image_token_index", "multimodal_projector_bias",
                "projector_hidden_act", "spatial_merge_size", "tie_word_embeddings", "vision_config", "vision_feature_layer"});
  MOED_ASSIGN_OR_RETURN(ConfigReader text, config.Object("text_config"));
  MOED_RETURN_IF_ERROR(config.Finish());
  return ReadText(std::move(text), tied, generation_config);
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts = LatentParts(spec);
  const std::vector<TensorPart> experts = FusedMlpExperts(spec);
  parts.insert(parts.end(), experts.begin(), experts.end());
  return parts;
}

bool IsUnused(const ModelSpec&, std::string_view name) {
  return name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector.");
}

}  // namespace

Family Mistral4Family() {
  return {kText, ReadSpec, MlpExpertTensor, TrunkTensors, Parts, IsUnused, kWhole, "language_model.model.", kWholeNames};
}

}  // namespace moed
