// Qwen3.5-MoE and 3.6, the text part: as Qwen3-Next with projections of their own. The experts of a layer may be one tensor.
// Whole checkpoints see pictures as well; those tensors are left out.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/delta_net_checkpoint.h"
#include "core/model/families.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

constexpr std::string_view kText = "qwen3_5_moe_text";
constexpr std::string_view kWhole = "qwen3_5_moe";

absl::StatusOr<ModelSpec> ReadText(ConfigReader config, std::optional<bool> tied, std::string_view generation_config) {
  ModelSpec spec = ReadDecoder(config, {.partial_rotary = 0.25, .mrope = true, .layer_types = true});
  config.Only("model_type", {kText});
  if (tied) spec.tied_embeddings = *tied;
  ReadDeltaNet(config, spec);
  ReadGatedModel(config, spec);
  config.Only("mlp_only_layers", {nlohmann::json::array()});
  config.Only("norm_topk_prob", {true});
  config.Only("decoder_sparse_step", {1});
  config.Known({"intermediate_size", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"});
  spec.norm_topk_prob = true;
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  if (config.String("model_type") != kWhole) return ReadText(std::move(config), std::nullopt, generation_config);
  const bool tied = config.BoolOr("tie_word_embeddings", false);
  config.Known({"bos_token_id", "eos_token_id", "image_token_id", "language_model_only", "video_token_id", "vision_config",
                "vision_end_token_id", "vision_start_token_id"});
  MOED_ASSIGN_OR_RETURN(ConfigReader text, config.Object("text_config"));
  MOED_RETURN_IF_ERROR(config.Finish());
  return ReadText(std::move(text), tied, generation_config);
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.norms = Spelling::kLessOne}); }

void AddProjections(const ModelSpec& spec, int layer, std::vector<TensorPart>& parts) {
  const DeltaNetShape& shape = *spec.delta_net;
  const std::string prefix = DeltaNetPrefix(layer), whole = prefix + "in_proj_qkv.weight";
  const auto add = [&](const char* name, int first, int rows) {
    parts.push_back(PartOf(prefix + name, rows, spec.hidden, {whole, shape.ConvolvedWidth(), first}));
  };
  add("in_proj_q.weight", 0, shape.KeyWidth());
  add("in_proj_k.weight", shape.KeyWidth(), shape.KeyWidth());
  add("in_proj_v.weight", 2 * shape.KeyWidth(), shape.ValueWidth());
}

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts = DeltaNetParts(spec);
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (spec.IsRecurrent(LayerId(layer))) AddProjections(spec, layer, parts);
    AddFusedExperts(spec, LayerId(layer), MlpExpertsPrefix(LayerId(layer)), MlpExpertTensor, parts);
  }
  return parts;
}

bool IsUnused(const ModelSpec&, std::string_view name) {
  return IsMultiTokenPrediction(name) || name.starts_with("model.visual.");
}

}  // namespace

Family Qwen35MoeFamily() {
  return {kText, ReadSpec, MlpExpertTensor, TrunkTensors, Parts, IsUnused, kWhole, "model.language_model."};
}

}  // namespace moed
