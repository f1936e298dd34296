// Gemma 4 with experts (26B-A4B), the text part. Layers with a window and those that see all have heads, and rotations, of their
// own; the latter make keys and values by one projection. A dense block stands beside the experts as their shared expert; it, the
// router and the experts have norms of what they read, and what they put out is normed too. Whole checkpoints see pictures as
// well; those tensors are left out.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"
#include "core/model/gemma4_traits.h"

namespace moed {
namespace {

constexpr std::string_view kText = "gemma4_text", kWhole = "gemma4";
constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention";

// transformers' where the keys are absent.
constexpr int kSlidingDim = 256, kFullDim = 512;
constexpr double kSlidingTheta = 10000, kFullTheta = 1000000, kFullPartial = 0.25;

std::vector<std::string> EverySixthSeesAll(int layers) {
  std::vector<std::string> types;
  for (int layer = 1; layer <= layers; ++layer) types.emplace_back(layer % 6 == 0 || layer == layers ? kFull : kSliding);
  return types;
}

// transformers 5.23 writes the heads of layers that see all under per_layer_config, one object for each of them; none where they
// are as those of the others.
absl::StatusOr<HeadShape> ReadPerLayer(ConfigReader& config, const ModelSpec& spec, const HeadShape& sliding) {
  std::optional<HeadShape> full;
  MOED_ASSIGN_OR_RETURN(ConfigReader layers, config.Object("per_layer_config"));
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (spec.WindowOf(LayerId(layer)) > 0) continue;
    HeadShape shape = sliding;
    if (layers.Has(StrCat(layer))) {
      MOED_ASSIGN_OR_RETURN(ConfigReader own, layers.Object(StrCat(layer)));
      shape = {.kv_heads = own.IntOr("num_key_value_heads", sliding.kv_heads, 1, 1024),
               .head_dim = own.IntOr("head_dim", sliding.head_dim, 2, 1024)};
      MOED_RETURN_IF_ERROR(own.Finish());
    }
    if (full && *full != shape) {
      return InvalidArgument("config.json: per_layer_config.", layer, " differs from that of another layer that sees all");
    }
    full = shape;
  }
  MOED_RETURN_IF_ERROR(layers.Finish());
  return full.value_or(sliding);
}

HeadShape ReadFullHeads(ConfigReader& config, const ModelSpec& spec, const HeadShape& sliding) {
  const bool values_are_keys = config.BoolOr("attention_k_eq_v", false);
  HeadShape full = sliding;
  if (config.Has("per_layer_config")) {
    const absl::StatusOr<HeadShape> read = ReadPerLayer(config, spec, sliding);
    if (!read.ok()) config.Fail(read.status());
    full = read.value_or(sliding);
    config.Only("global_head_dim", {full.head_dim});
    config.Only("num_global_key_value_heads", {full.kv_heads});
  } else {
    full.head_dim = config.IntOr("global_head_dim", kFullDim, 2, 1024);
    const int kv_heads = config.IntOr("num_global_key_value_heads", sliding.kv_heads, 1, 1024);
    if (values_are_keys) full.kv_heads = kv_heads;
  }
  full.values_are_keys = values_are_keys;
  return full;
}

// Rotation 0 and its heads are those of the layers that see all.
void ReadKindsOfLayers(ConfigReader& config, ModelSpec& spec) {
  const HeadShape sliding = {.kv_heads = config.Int("num_key_value_heads", 1, 1024),
                             .head_dim = config.IntOr("head_dim", kSlidingDim, 2, 1024)};
  const HeadShape full = ReadFullHeads(config, spec, sliding);
  const std::array types = {kSliding, kFull};
  const std::array dims = {sliding.head_dim, full.head_dim};
  const std::vector<std::optional<Rotation>> read = config.ReadRotations(types, dims);
  const Rotation own = {.theta = kFullTheta, .pairs = static_cast<int>(kFullPartial * full.head_dim / 2)};
  const Rotation rotation = read[1].value_or(own);
  spec.rope_theta = rotation.theta;
  spec.yarn = rotation.yarn;
  spec.rotated_pairs = rotation.pairs;
  spec.kv_heads = full.kv_heads;
  spec.head_dim = full.head_dim;
  spec.values_are_keys = full.values_are_keys;
  if (spec.windows.empty()) return;
  if (spec.windows.back() > 0) config.Fail(InvalidArgument("config.json: the last of layer_types is not \"", kFull, "\""));
  spec.more_rotations = {read[0].value_or(Rotation{kSlidingTheta})};
  spec.more_heads = {sliding};
  for (const int window : spec.windows) spec.rotations.push_back(window > 0 ? 1 : 0);
}

// What other models of the family have.
void RefuseOthers(ConfigReader& config) {
  if (!config.BoolOr("enable_moe_block", false)) {
    config.Fail(InvalidArgument("config.json: enable_moe_block = false is not supported; allowed: true"));
  }
  config.Int("hidden_size_per_layer_input", 0, 0);  // absent, it would be 256
  config.Known({"vocab_size_per_layer_input"});
  config.Only("num_kv_shared_layers", {0});
  config.Only("use_double_wide_mlp", {false});
  config.Only("use_bidirectional_attention", {"vision"});  // of pictures
  config.Only("hidden_act", {});
  config.Only("rope_theta", {});
  config.Only("rope_scaling", {});
  config.Only("hidden_activation", {"gelu_pytorch_tanh"});
}

absl::StatusOr<ModelSpec> ReadText(ConfigReader config, std::string_view generation_config) {
  ModelSpec spec =
      ReadDecoder(config, {.top_k = "top_k_experts", .layer_types = true, .rotations = true, .activation = true, .heads = true});
  config.Only("model_type", {kText});
  RefuseOthers(config);
  ReadWindows(config, spec, EverySixthSeesAll(spec.layers));
  ReadKindsOfLayers(config, spec);
  spec.tied_embeddings = config.BoolOr("tie_word_embeddings", true);
  spec.logits_cap = config.NumberOr("final_logit_softcapping", 0, 1e-3, 1e6);
  spec.shared_ffn = config.Int("intermediate_size", 1, 1 << 20);
  spec.experts = config.Int("num_experts", 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 20);
  SetGemma4Traits(spec);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  if (config.String("model_type") != kWhole) return ReadText(std::move(config), generation_config);
  config.Only("tie_word_embeddings", {true});
  config.Known({"audio_config", "audio_token_id", "boa_token_id", "boi_token_id", "bos_token_id", "eoa_token_id",
                "eoa_token_index", "eoi_token_id", "eos_token_id", "image_token_id", "video_token_id", "vision_config",
                "vision_soft_tokens_per_image"});
  MOED_ASSIGN_OR_RETURN(ConfigReader text, config.Object("text_config"));
  MOED_RETURN_IF_ERROR(config.Finish());
  return ReadText(std::move(text), generation_config);
}

constexpr OwnName kNames[] = {
    {"attn_post_norm", "post_attention_layernorm.weight"},
    {"ffn_norm", "pre_feedforward_layernorm_2.weight"},
    {"router_norm", "router.scale"},
    {"router", "router.proj.weight"},
    {"expert_scales", "router.per_expert_scale"},
    {"shared_norm", "pre_feedforward_layernorm.weight"},
    {"shared.gate", "mlp.gate_proj.weight"},
    {"shared.up", "mlp.up_proj.weight"},
    {"shared.down", "mlp.down_proj.weight"},
    {"shared_post_norm", "post_feedforward_layernorm_1.weight"},
    {"experts_post_norm", "post_feedforward_layernorm_2.weight"},
    {"ffn_post_norm", "post_feedforward_layernorm.weight"},
    {"layer_scale", "layer_scalar"},
};

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.own = kNames}); }

std::string ExpertsPrefix(LayerId layer) { return StrCat("model.layers.", layer.value(), ".experts."); }

std::string ExpertTensor(LayerId layer, int expert, ExpertPart part) {
  static constexpr std::string_view kProjections[kExpertParts] = {"gate_proj", "up_proj", "down_proj"};
  return StrCat(ExpertsPrefix(layer), expert, ".", kProjections[static_cast<size_t>(part)], ".weight");
}

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (const LayerId layer : spec.MoeLayers()) AddFusedExperts(spec, layer, ExpertsPrefix(layer), ExpertTensor, parts);
  return parts;
}

bool IsUnused(const ModelSpec&, std::string_view name) {
  static constexpr std::string_view kOthers[] = {"model.vision_tower.", "model.embed_vision.", "model.audio_tower.",
                                                 "model.embed_audio."};
  return std::ranges::any_of(kOthers, [&](std::string_view other) { return name.starts_with(other); });
}

}  // namespace

void SetGemma4Traits(ModelSpec& spec) {
  spec.embedding_scale = std::sqrt(spec.hidden);
  spec.attention_scale = 1;
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.norms = ModelSpec::Norms::kAround;
  spec.value_norm = spec.layer_scale = spec.expert_scales = true;
  spec.activation = Activation::kGelu;
  spec.norm_topk_prob = true;
  spec.router_logits_scale = 1 / std::sqrt(spec.hidden);
}

Family Gemma4Family() { return {kText, ReadSpec, ExpertTensor, TrunkTensors, Parts, IsUnused, kWhole, "model.language_model."}; }

}  // namespace moed
