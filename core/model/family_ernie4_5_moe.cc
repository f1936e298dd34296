// ERNIE 4.5: probabilities with a correction, shared experts, neighbouring pairs rotated, layers with experts at an interval.
#include "absl/strings/match.h"
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

void ReadLayers(ConfigReader& config, ModelSpec& spec) {
  const int interval = config.IntOr("moe_layer_interval", 1, 1, 4096);
  const int first = config.IntOr("moe_layer_start_index", 1, 0, 4096);
  const int end = config.IntOr("moe_layer_end_index", -1, -1, 4096);
  const int last = end == -1 ? spec.layers - 1 : end;
  bool dense = false;
  for (int layer = 0; layer < spec.layers; ++layer) {
    spec.moe[layer] = (layer + 1) % interval == 0 && layer >= first && layer <= last;
    dense |= !spec.moe[layer];
  }
  const int dense_ffn = config.Int("intermediate_size", 1, 1 << 20);
  if (dense) spec.dense_ffn = dense_ffn;
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.top_k = "moe_k", .tied = true});
  config.Only("sliding_window", {});
  config.Only("use_bias", {false});
  config.Only("use_rmsnorm", {true});
  config.Only("moe_use_aux_free", {true});
  config.Only("moe_gate", {"topk"});
  config.Only("is_quantized", {false});
  config.Known({"auto_map", "moe_capacity", "num_nextn_predict_layers"});
  spec.rope_interleaved = true;
  spec.experts = config.Int("moe_num_experts", 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 18);
  spec.shared_ffn = config.IntOr("moe_num_shared_experts", 2, 0, kMostShared) * spec.expert_ffn;
  ReadLayers(config, spec);
  spec.norm_topk_prob = true;
  spec.router_correction = true;
  spec.router_epsilon = config.NumberOr("moe_norm_min", 1e-12, 0, 1e-6);  // its floor of the sum, which no sum is near
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(
      spec, {.correction = "moe_statics.e_score_correction_bias", .correction_is_row = true, .shared = "shared_experts"});
}

// They predict further tokens.
bool IsUnused(const ModelSpec&, std::string_view name) { return absl::StartsWith(ToAbsl(name), "model.mtp_"); }

}  // namespace

Family Ernie45MoeFamily() { return {"ernie4_5_moe", ReadSpec, MlpExpertTensor, TrunkTensors, nullptr, IsUnused}; }

}  // namespace moed
