// dots.llm1: norms of each head, sigmoid scores with a correction, shared experts, leading dense layers. Layers from
// max_window_layers on may have a window.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

// What layer_types says where it is absent.
std::vector<std::string> LastSlide(ConfigReader& config, const ModelSpec& spec) {
  constexpr const char* kWindow = "sliding_window";
  const int first = config.IntOr("max_window_layers", 62, 0, 4096);
  const bool slides = !config.IsNull(kWindow);  // absent, it would be 4096
  std::vector<std::string> types;
  for (int layer = 0; layer < spec.layers; ++layer) {
    types.emplace_back(slides && layer >= first ? "sliding_attention" : "full_attention");
  }
  return types;
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  config.Int("num_key_value_heads", 1, 1024);  // absent, it would be 32
  ModelSpec spec = ReadDecoder(config, {.attention_bias = true, .layer_types = true});
  spec.qkv_bias = spec.o_bias = config.BoolOr("attention_bias", false);
  ReadWindows(config, spec, LastSlide(config, spec));
  config.Only("moe_layer_freq", {1});
  config.Only("scoring_func", {"sigmoid", "noaux_tc"});
  config.Only("topk_method", {"noaux_tc"});
  config.Known({"auto_map", "aux_loss_alpha", "ep_size", "seq_aux"});
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadRoutedExperts(config, spec);
  config.Only("num_local_experts", {spec.experts});
  ReadLeadingDense(config, spec);
  ReadCorrectedRouter(config, spec, 1.0);
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", false);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

}  // namespace

Family Dots1Family() { return {"dots1", ReadSpec, MlpExpertTensor, TrunkTensors}; }

}  // namespace moed
