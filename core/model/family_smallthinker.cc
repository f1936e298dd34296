// SmallThinker (PowerInfer): the router reads what the layer reads, before attention, so that experts are read meanwhile. Gated
// ReLU in the experts; some layers have a window, and heads of others do not turn.
#include <algorithm>

#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"
#include "core/model/smallthinker_traits.h"

namespace moed {
namespace {

// What the model of 21 billion parameters has in place of a model_type.
constexpr std::string_view kArchitecture = "SmallThinkerForCausalLM", kFamily = "smallthinker";

// A list of 0 and 1, `otherwise` for all where it is absent.
std::vector<bool> ReadLayout(ConfigReader& config, std::string_view key, int layers, bool otherwise) {
  std::vector<bool> layout(static_cast<size_t>(layers), otherwise);
  if (!config.Has(key)) {
    config.Known({key});
    return layout;
  }
  const std::vector<int> numbers = config.IntsOr(key, 0, 1);
  if (numbers.size() != layout.size()) {
    config.Fail(InvalidArgument("config.json: ", key, " has ", numbers.size(), " entries for ", layers, " layers"));
    return layout;
  }
  for (size_t layer = 0; layer < layout.size(); ++layer) layout[layer] = numbers[layer] == 1;
  return layout;
}

void RefuseOthers(ConfigReader& config, const ModelSpec& spec) {
  const std::vector<bool> moe = ReadLayout(config, "moe_layer_layout", spec.layers, true);
  if (std::ranges::find(moe, false) != moe.end()) {
    config.Fail(InvalidArgument("config.json: moe_layer_layout has 0; allowed: experts in all layers"));
  }
  config.Only("moe_enable_early_router", {true});
  config.Only("moe_enable_secondary_experts", {false});
  config.Only("moe_num_secondary_experts", {0});
  config.Only("moe_secondary_expert_size", {0});
  config.Only("moe_shared_primary_experts", {0});
  config.Only("use_qk_norm", {false});
  config.Only("norm_topk_prob", {true});
  config.Only("hidden_act", {"relu"});
  // The window once more, as other programs look for it, and what generating says.
  config.Known(
      {"auto_map", "dense_ffn_hidden_size", "model_name", "profile_sparsity", "sliding_window", "sliding_window_pattern"});
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec =
      ReadDecoder(config, {.top_k = "moe_num_active_primary_experts", .tied = true, .activation = true, .family = kFamily});
  RefuseOthers(config, spec);
  const std::vector<bool> slides = ReadLayout(config, "sliding_window_layout", spec.layers, false);
  const int window = config.IntOr("sliding_window_size", 4096, 1, INT32_MAX);
  SetSmallThinkerLayers(spec, ReadLayout(config, "rope_layout", spec.layers, true), slides, window);
  spec.experts = config.Int("moe_num_primary_experts", 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_ffn_hidden_size", 1, 1 << 20);
  const bool softmax = config.BoolOr("moe_primary_router_apply_softmax", false);
  SetSmallThinkerTraits(spec, softmax ? RouterScoring::kSoftmax : RouterScoring::kSigmoid);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(spec, {.block = kSparseBlock, .router = "primary_router"});
}

std::string ExpertTensor(LayerId layer, int expert, ExpertPart part) {
  static constexpr std::string_view kProjections[kExpertParts] = {"gate", "up", "down"};
  return ExpertTensorName(layer, kSparseBlock, expert, kProjections[static_cast<size_t>(part)]);
}

}  // namespace

void SetSmallThinkerLayers(ModelSpec& spec, const std::vector<bool>& turns, const std::vector<bool>& slides, int window) {
  if (std::ranges::find(slides, true) != slides.end()) {
    for (const bool slide : slides) spec.windows.push_back(slide ? window : 0);
  }
  SetRotating(spec, turns);
}

void SetSmallThinkerTraits(ModelSpec& spec, RouterScoring scoring) {
  spec.router_input = ModelSpec::RouterInput::kLayer;
  spec.router_scoring = scoring;
  spec.norm_topk_prob = true;
  spec.activation = Activation::kGatedRelu;
}

Family SmallThinkerFamily() {
  Family family = {kFamily, ReadSpec, ExpertTensor, TrunkTensors};
  family.architecture = kArchitecture;
  return family;
}

}  // namespace moed
