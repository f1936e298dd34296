// Llama 4 (Scout, Maverick), the text part: one expert, whose input its score multiplies, beside a shared one. Layers that rotate
// see a chunk of the text each and norm their heads; the others see all of it, with queries that grow with their position. Whole
// checkpoints see pictures as well; those tensors are left out.
#include <algorithm>

#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"
#include "core/model/llama4_traits.h"

namespace moed {
namespace {

constexpr std::string_view kText = "llama4_text", kWhole = "llama4";
constexpr NameBeginning kWholeNames[] = {{"language_model.lm_head.", "lm_head."}};
constexpr std::string_view kChunked = "chunked_attention", kFull = "full_attention";
constexpr std::string_view kBlock = "feed_forward";

// no_rope_layers is empty in released files: then every so many layers one does not rotate.
std::vector<bool> ReadRotating(ConfigReader& config, const ModelSpec& spec) {
  const int interval = config.IntOr("no_rope_layer_interval", 4, 1, 4096);
  const std::vector<int> given = config.IntsOr("no_rope_layers", 0, 1);
  if (!given.empty() && given.size() != static_cast<size_t>(spec.layers)) {
    config.Fail(InvalidArgument("config.json: no_rope_layers has ", given.size(), " entries for ", spec.layers, " layers"));
    return std::vector<bool>(static_cast<size_t>(spec.layers), true);
  }
  std::vector<bool> rotate;
  for (int layer = 0; layer < spec.layers; ++layer) {
    rotate.push_back(given.empty() ? (layer + 1) % interval != 0 : given[static_cast<size_t>(layer)] != 0);
  }
  return rotate;
}

// Layers that rotate see chunks, unless layer_types says otherwise.
void ReadChunks(ConfigReader& config, ModelSpec& spec, const std::vector<bool>& rotate) {
  static constexpr std::string_view kTypes[] = {kChunked, kFull};
  const int chunk = config.IsNull("attention_chunk_size") ? 0 : config.IntOr("attention_chunk_size", 8192, 1, 1 << 24);
  config.Known({"attention_chunk_size"});
  std::vector<std::string> usual;
  for (const bool rotates : rotate) usual.emplace_back(rotates && chunk > 0 ? kChunked : kFull);
  const std::vector<std::string> types = config.StringsOr("layer_types", spec.layers, kTypes, std::move(usual));
  if (std::ranges::find(types, kChunked) == types.end()) return;
  if (chunk == 0) config.Fail(InvalidArgument("config.json: layer_types name layers with chunks, attention_chunk_size none"));
  for (const std::string& type : types) spec.windows.push_back(type == kChunked ? chunk : 0);
  spec.windows_are_chunks = true;
}

void ReadMoeLayers(ConfigReader& config, ModelSpec& spec) {
  const int step = config.IntOr("interleave_moe_layer_step", 1, 1, 4096);
  if (config.Has("moe_layers")) {
    spec.moe.assign(static_cast<size_t>(spec.layers), false);
    for (const int layer : config.IntsOr("moe_layers", 0, spec.layers - 1)) spec.moe[static_cast<size_t>(layer)] = true;
  } else {
    config.Known({"moe_layers"});
    for (int layer = 0; layer < spec.layers; ++layer) spec.moe[static_cast<size_t>(layer)] = (layer + 1) % step == 0;
  }
  spec.expert_ffn = spec.shared_ffn = config.Int("intermediate_size", 1, 1 << 20);
  const bool dense = std::ranges::find(spec.moe, false) != spec.moe.end();
  const int dense_ffn = config.IntOr("intermediate_size_mlp", 16384, 1, 1 << 20);
  if (dense) spec.dense_ffn = dense_ffn;
}

absl::StatusOr<ModelSpec> ReadText(ConfigReader config, std::string_view generation_config) {
  config.Int("num_key_value_heads", 1, 1024);  // absent, they would be 8, and the next 128
  config.Int("head_dim", 2, 1024);
  ModelSpec spec = ReadDecoder(config, {.layer_types = true});
  config.Only("model_type", {kText});
  config.Only("sliding_window", {});
  config.Known({"for_llm_compressor", "_attn_implementation_autoset"});
  const std::vector<bool> rotate = ReadRotating(config, spec);
  ReadChunks(config, spec, rotate);
  ReadMoeLayers(config, spec);
  spec.experts = config.Int(config.Spelling("num_local_experts", "num_experts"), 1, 1 << 14);
  const bool tuned = config.TruthOr("attn_temperature_tuning", true);
  const int floor_scale = config.IntOr("floor_scale", 8192, 1, 1 << 24);
  const double attn_scale = config.NumberOr("attn_scale", 0.1, 0, 100);
  SetLlama4Traits(spec, rotate, config.BoolOr("use_qk_norm", true), tuned ? attn_scale : 0, floor_scale);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  if (config.String("model_type") != kWhole) return ReadText(std::move(config), generation_config);
  config.Only("tie_word_embeddings", {false});
  config.Known({"boi_token_index", "eoi_token_index", "image_token_index", "vision_config", "bos_token_id", "eos_token_id"});
  MOED_ASSIGN_OR_RETURN(ConfigReader text, config.Object("text_config"));
  MOED_RETURN_IF_ERROR(config.Finish());
  return ReadText(std::move(text), generation_config);
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(spec, {.block = kBlock, .router = "router", .dense = kBlock});
}

std::string ExpertTensor(LayerId layer, int expert, ExpertPart part) {
  static constexpr std::string_view kProjections[kExpertParts] = {"gate_proj", "up_proj", "down_proj"};
  return ExpertTensorName(layer, kBlock, expert, kProjections[static_cast<size_t>(part)]);
}

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (const LayerId layer : spec.MoeLayers()) {
    AddTransposedExperts(spec, layer, StrCat("model.layers.", layer.value(), ".", kBlock, ".experts."), ExpertTensor, parts);
  }
  return parts;
}

bool IsUnused(const ModelSpec&, std::string_view name) {
  return name.starts_with("vision_model.") || name.starts_with("multi_modal_projector.");
}

}  // namespace

void SetLlama4Traits(ModelSpec& spec, const std::vector<bool>& rotate, bool norms_heads, double temperature, int positions) {
  const bool some_rotate = std::ranges::find(rotate, true) != rotate.end();
  const bool all_rotate = std::ranges::find(rotate, false) == rotate.end();
  spec.rope_interleaved = true;
  SetRotating(spec, rotate);
  if (norms_heads && some_rotate) spec.qk_norm = ModelSpec::QkNorm::kUnit;
  if (temperature > 0 && !all_rotate) {
    spec.temperature = {.scale = temperature, .positions = positions, .shift = 1, .of_unrotated = true};
  }
  spec.router_scoring = RouterScoring::kSigmoidOfChosen;
  spec.weighs_inputs = true;
}

Family Llama4Family() {
  return {kText, ReadSpec, ExpertTensor, TrunkTensors, Parts, IsUnused, kWhole, "language_model.model.", kWholeNames};
}

}  // namespace moed
