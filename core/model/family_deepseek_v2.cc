// DeepSeek-V2 and V2-Lite: multi-head latent attention, leading dense layers, shared experts; the larger one chooses among the
// groups with the best expert.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

void ReadGroups(ConfigReader& config, ModelSpec& spec) {
  const int groups = config.IntOr("n_group", 1, 1, kMostGroups);
  const int kept = config.IntOr("topk_group", 1, 1, kMostGroups);
  config.Only("topk_method", {"greedy", "group_limited_greedy"});
  if (!config.Has("topk_method") || config.String("topk_method") == "greedy") return;
  spec.router_groups = groups;
  spec.router_kept_groups = kept;
}

// Of several experts, whose outputs are not scaled: of these the published code, vLLM and llama.cpp say the same. transformers
// does not read the key.
void ReadNormalised(ConfigReader& config, ModelSpec& spec) {
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", false);
  if (!spec.norm_topk_prob || (spec.router_scale == 1 && spec.top_k > 1)) return;
  config.Fail(InvalidArgument("config.json: norm_topk_prob = true with routed_scaling_factor = ", spec.router_scale,
                              " and num_experts_per_tok = ", spec.top_k, " is not supported; allowed: with 1, and 2 or more"));
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.latent = true});
  config.Only("sliding_window", {});
  config.Only("moe_layer_freq", {1});
  config.Only("scoring_func", {"softmax"});
  config.Known({"auto_map", "aux_loss_alpha", "ep_size", "seq_aux"});
  spec.rope_interleaved = true;
  ReadRoutedExperts(config, spec);
  ReadLeadingDense(config, spec);
  ReadGroups(config, spec);
  spec.router_scale = config.NumberOr("routed_scaling_factor", 1.0, 1e-3, 1e3);
  ReadNormalised(config, spec);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

}  // namespace

Family DeepSeekV2Family() { return {"deepseek_v2", ReadSpec, MlpExpertTensor, TrunkTensors, LatentParts}; }

}  // namespace moed
