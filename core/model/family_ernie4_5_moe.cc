// ERNIE 4.5: probabilities with a correction, shared experts, neighbouring pairs rotated, layers with experts at an interval.
// ERNIE 4.5 VL, the text part: positions have three numbers, which are one in a text; a layer has experts of texts and, behind
// them, experts of pictures, which are left out with all else that sees.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

// As released, all in one; and as transformers writes it.
constexpr std::string_view kReleased = "ernie4_5_moe_vl", kWhole = "ernie4_5_vl_moe", kText = "ernie4_5_vl_moe_text";
constexpr int kMostShared = 64, kMostExperts = 1 << 14, kMostFfn = 1 << 18;

std::vector<bool> LayersWithExperts(int layers, int interval, int first, int end) {
  const int last = end == -1 ? layers - 1 : end;
  std::vector<bool> moe;
  for (int layer = 0; layer < layers; ++layer) moe.push_back((layer + 1) % interval == 0 && layer >= first && layer <= last);
  return moe;
}

void SetLayers(ConfigReader& config, std::vector<bool> moe, ModelSpec& spec) {
  spec.moe = std::move(moe);
  const int dense_ffn = config.Int("intermediate_size", 1, 1 << 20);
  if (std::ranges::count(spec.moe, false) > 0) spec.dense_ffn = dense_ffn;
}

// What no model of either kind does otherwise.
void ReadFixedTraits(ConfigReader& config) {
  config.Only("sliding_window", {});
  config.Only("use_bias", {false});
  config.Only("use_rmsnorm", {true});
  config.Only("moe_use_aux_free", {true});
  config.Only("moe_gate", {"topk"});
  config.Known({"auto_map", "moe_capacity"});
}

void SetRouter(ConfigReader& config, ModelSpec& spec) {
  spec.rope_interleaved = true;
  spec.norm_topk_prob = true;
  spec.router_correction = true;
  spec.router_epsilon = config.NumberOr("moe_norm_min", 1e-12, 0, 1e-6);  // its floor of the sum, which no sum is near
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.top_k = "moe_k", .tied = true});
  ReadFixedTraits(config);
  config.Only("is_quantized", {false});
  config.Known({"num_nextn_predict_layers"});
  SetRouter(config, spec);
  spec.experts = config.Int("moe_num_experts", 1, kMostExperts);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, kMostFfn);
  spec.shared_ffn = config.IntOr("moe_num_shared_experts", 2, 0, kMostShared) * spec.expert_ffn;
  const int interval = config.IntOr("moe_layer_interval", 1, 1, 4096);
  const int first = config.IntOr("moe_layer_start_index", 1, 0, 4096);
  SetLayers(config, LayersWithExperts(spec.layers, interval, first, config.IntOr("moe_layer_end_index", -1, -1, 4096)), spec);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(
      spec, {.correction = "moe_statics.e_score_correction_bias", .correction_is_row = true, .shared = "shared_experts"});
}

// They predict further tokens.
bool IsUnused(const ModelSpec&, std::string_view name) { return absl::StartsWith(ToAbsl(name), "model.mtp_"); }

// One number of texts and one of pictures, or one of both.
std::vector<int> ReadPair(ConfigReader& config, std::string_view key, int64_t low, int64_t high) {
  std::vector<int> pair = config.IntsOr(key, low, high);
  if (pair.empty() || pair.size() > 2) {
    config.Fail(InvalidArgument("config.json: ", key, " has ", pair.size(), " numbers, expected one, or one of texts and one of ",
                                "pictures"));
    pair = {static_cast<int>(low)};
  }
  return pair;
}

// Texts and pictures have experts in the same layers.
std::vector<bool> ReadSeeingLayers(ConfigReader& config, int layers) {
  const int interval = config.IntOr("moe_layer_interval", 1, 1, 4096);
  const std::vector<int> first = ReadPair(config, "moe_layer_start_index", 0, 4096);
  const std::vector<int> end = ReadPair(config, "moe_layer_end_index", -1, 4096);
  std::vector<bool> moe = LayersWithExperts(layers, interval, first.front(), end.front());
  if (LayersWithExperts(layers, interval, first.back(), end.back()) != moe) {
    config.Fail(InvalidArgument("config.json: moe_layer_start_index and moe_layer_end_index give texts and pictures experts in ",
                                "different layers, which is not supported"));
  }
  return moe;
}

absl::StatusOr<ModelSpec> ReadSeeing(ConfigReader config, std::string_view model_type, std::string_view generation_config) {
  const bool of_whole = model_type == kText;
  ModelSpec spec = ReadDecoder(config, {.top_k = "moe_k", .tied = true, .mrope = true});
  if (spec.yarn) config.Fail(InvalidArgument("config.json: the rope type of ERNIE 4.5 VL is yarn, expected default"));
  ReadFixedTraits(config);
  SetRouter(config, spec);
  const std::vector<int> experts = ReadPair(config, "moe_num_experts", 1, kMostExperts);
  config.Only("moe_num_experts", {experts.front(), {experts.front(), experts.front()}});
  spec.experts = experts.front();
  spec.expert_ffn = ReadPair(config, "moe_intermediate_size", 1, kMostFfn).front();
  spec.shared_ffn = config.IntOr("moe_num_shared_experts", of_whole ? 2 : 0, 0, kMostShared) * spec.expert_ffn;
  config.Only("model_type", {model_type});
  if (of_whole) {
    ReadMlpTypes(config, spec, LeadingDenseTypes(spec, 1));
  } else {
    config.Only("rope_3d", {true});
    config.Known({"freq_allocation", "im_patch_id", "image_end_token_id", "image_start_token_id", "image_token_id",
                  "moe_multimodal_dispatch_use_allgather", "pixel_hidden_size", "spatial_conv_size", "temporal_conv_size",
                  "video_end_token_id", "video_start_token_id", "video_token_id", "vision_config"});
    SetLayers(config, ReadSeeingLayers(config, spec.layers), spec);
  }
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

absl::StatusOr<ModelSpec> ReadSeeingSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  const std::string type = config.String("model_type");
  if (type != kWhole) return ReadSeeing(std::move(config), type, generation_config);
  const bool tied = config.BoolOr("tie_word_embeddings", true);
  config.Known({"bos_token_id", "eos_token_id", "image_end_token_id", "image_start_token_id", "image_token_id",
                "video_end_token_id", "video_start_token_id", "video_token_id", "vision_config"});
  MOED_ASSIGN_OR_RETURN(ConfigReader text, config.Object("text_config"));
  MOED_RETURN_IF_ERROR(config.Finish());
  text.Only("tie_word_embeddings", {tied});
  return ReadSeeing(std::move(text), kText, generation_config);
}

// transformers' names of what the checkpoint has as parts of others.
constexpr std::string_view kTextRouter = "text_moe.gate", kTextCorrection = "text_moe.gate.moe_statics.e_score_correction_bias";

std::vector<TrunkTensor> SeeingTrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(
      spec, {.router = kTextRouter, .correction = kTextCorrection, .correction_is_row = true, .shared = "shared_experts"});
}

// The router with inputs before outputs; the corrections of texts, then those of pictures.
std::vector<TensorPart> SeeingParts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (const LayerId layer : spec.MoeLayers()) {
    const std::string block = StrCat("model.layers.", layer.value(), ".mlp.");
    parts.push_back({.name = StrCat(block, kTextRouter, ".weight"),
                     .whole = block + "gate.weight",
                     .whole_shape = ShapeOf({spec.hidden, spec.experts}),
                     .rows = spec.experts,
                     .cols = spec.hidden,
                     .row_stride = 1,
                     .col_stride = spec.experts});
    parts.push_back({.name = StrCat(block, kTextCorrection),
                     .whole = block + "moe_statics.e_score_correction_bias",
                     .whole_shape = ShapeOf({2, spec.experts}),
                     .rows = 1,
                     .cols = spec.experts,
                     .row_stride = spec.experts});
  }
  return parts;
}

bool IsOfPictures(const ModelSpec& spec, std::string_view name) {
  constexpr std::string_view kExperts = ".mlp.experts.";
  if (name.starts_with("model.layers.") && name.ends_with(".mlp.gate.weight_1")) return true;
  const size_t at = name.find(kExperts);
  if (at == std::string_view::npos) {
    static constexpr std::string_view kOthers[] = {"vision_model.", "model.vision_model.", "model.resampler_model."};
    return std::ranges::any_of(kOthers, [&](std::string_view other) { return name.starts_with(other); });
  }
  const std::string_view rest = name.substr(at + kExperts.size());
  int expert = -1;
  return absl::SimpleAtoi(ToAbsl(rest.substr(0, rest.find('.'))), &expert) && expert >= spec.experts && expert < 2 * spec.experts;
}

}  // namespace

Family Ernie45MoeFamily() { return {"ernie4_5_moe", ReadSpec, MlpExpertTensor, TrunkTensors, nullptr, IsUnused}; }

Family Ernie45MoeVlFamily() {
  return {kReleased, ReadSeeingSpec, MlpExpertTensor, SeeingTrunkTensors, SeeingParts, IsOfPictures};
}

Family Ernie45VlMoeFamily() {
  return {kText, ReadSeeingSpec, MlpExpertTensor, SeeingTrunkTensors, SeeingParts, IsOfPictures, kWhole, "model."};
}

}  // namespace moed
