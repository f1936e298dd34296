// Command A+ and North Mini (Cohere 2 with experts): one norm a layer, whose output attention and feed-forward block both read.
// Layers with a window rotate, those that see all do not, but for the dense ones at the front. Whole checkpoints see pictures as
// well; those tensors are left out.
#include <algorithm>

#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr std::string_view kText = "cohere2_moe", kWhole = "cohere2_vision";
constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention";
constexpr int kMostShared = 64;

// Every so many layers one sees all, counted anew behind the dense ones at the front.
std::vector<std::string> UsualTypes(int layers, int dense, int dense_pattern, int pattern) {
  std::vector<std::string> types;
  for (int layer = 0; layer < layers; ++layer) {
    const bool in_front = layer < dense;
    const bool full = ((in_front ? layer : layer - dense) + 1) % (in_front ? dense_pattern : pattern) == 0;
    types.emplace_back(full ? kFull : kSliding);
  }
  return types;
}

void ReadExperts(ConfigReader& config, ModelSpec& spec) {
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("intermediate_size", 1, 1 << 18);
  spec.shared_ffn = config.IntOr("num_shared_experts", 0, 0, kMostShared) * spec.expert_ffn;
  const int dense_ffn = config.IntOr("prefix_dense_intermediate_size", spec.expert_ffn, 1, 1 << 20);
  if (std::ranges::find(spec.moe, false) != spec.moe.end()) spec.dense_ffn = dense_ffn;
  config.Only("expert_selection_fn", {"softmax", "sigmoid"});
  const bool norms = config.BoolOr("norm_topk_prob", true);
  if (config.Has("expert_selection_fn") && config.String("expert_selection_fn") == "sigmoid") {
    spec.router_scoring = RouterScoring::kSigmoidOfChosen;
    spec.norm_topk_prob = norms;
  } else {
    spec.norm_topk_prob = true;  // its softmax is over the chosen ones
  }
  config.Only("shared_expert_combination_strategy", {"average", "sum"});
  const bool sums =
      config.Has("shared_expert_combination_strategy") && config.String("shared_expert_combination_strategy") == "sum";
  if (spec.shared_ffn > 0 && !sums) spec.router_scale = spec.shared_scale = 0.5;
}

void ReadLayers(ConfigReader& config, ModelSpec& spec) {
  const int dense = config.IntOr("first_k_dense_replace", 0, 0, spec.layers);
  const int dense_pattern = config.IntOr("prefix_dense_sliding_window_pattern", 1, 1, 4096);
  const int pattern = config.IntOr("sliding_window_pattern", 4, 1, 4096);
  static constexpr std::string_view kTypes[] = {"dense", "sparse"};
  const std::vector<std::string> mlps = config.StringsOr("mlp_layer_types", spec.layers, kTypes, LeadingDenseTypes(spec, dense));
  for (int layer = 0; layer < spec.layers; ++layer) spec.moe[layer] = mlps[layer] == "sparse";
  ReadWindows(config, spec, UsualTypes(spec.layers, dense, dense_pattern, pattern));
  std::vector<bool> rotate;
  for (int layer = 0; layer < spec.layers; ++layer) {
    rotate.push_back(spec.WindowOf(LayerId(layer)) > 0 || (!spec.moe[layer] && dense_pattern == 1));
  }
  SetRotating(spec, rotate);
}

// What Cohere's own code could do otherwise, and transformers has built in.
void ReadFixedTraits(ConfigReader& config, const ModelSpec& spec) {
  for (const char* const always : {"use_parallel_block", "use_gated_activation"}) config.Only(always, {true});
  for (const char* const never : {"use_qk_norm", "use_parallel_embedding", "layer_norm_bias"}) config.Only(never, {false});
  config.Only("use_embedding_sharing", {spec.tied_embeddings});
  config.Only("position_embedding_type", {"rope_gptj"});
  config.Only("rotary_pct", {1});
}

absl::StatusOr<ModelSpec> ReadText(ConfigReader config, std::string_view generation_config) {
  config.Only("model_type", {kText});
  const bool rms = config.Has("rms_norm_eps");
  config.Int("head_dim", 2, 1024);  // absent, it would be 128
  ModelSpec spec = ReadDecoder(config, {.norm_eps = rms ? "rms_norm_eps" : "layer_norm_eps", .tied = true, .layer_types = true});
  config.Known({rms ? "layer_norm_eps" : "rms_norm_eps", "num_nextn_predict_layers"});
  ReadFixedTraits(config, spec);
  spec.layer_norm = !rms;
  spec.parallel = true;
  spec.rope_interleaved = true;
  spec.logits_scale = config.NumberOr("logit_scale", 0.0625, 1e-6, 1e6);
  ReadLayers(config, spec);
  ReadExperts(config, spec);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  if (config.String("model_type") != kWhole) return ReadText(std::move(config), generation_config);
  const bool tied = config.BoolOr("tie_word_embeddings", true);
  config.Known(
      {"alignment_intermediate_size", "bos_token_id", "downsample_factor", "eos_token_id", "image_token_id", "vision_config"});
  MOED_ASSIGN_OR_RETURN(ConfigReader text, config.Object("text_config"));
  MOED_RETURN_IF_ERROR(config.Finish());
  text.Only("tie_word_embeddings", {tied});
  return ReadText(std::move(text), generation_config);
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(spec, {.shared = "shared_experts", .no_norm_bias = true});
}

bool IsUnused(const ModelSpec& spec, std::string_view name) {
  return IsBehindTheLastLayer(spec, name) || name.starts_with("model.vision_tower.") ||
         name.starts_with("model.multi_modal_projector.");
}

}  // namespace

Family Cohere2MoeFamily() {
  return {kText, ReadSpec, MlpExpertTensor, TrunkTensors, FusedMlpExperts, IsUnused, kWhole, "model.language_model."};
}

}  // namespace moed
