// DeepSeek-V3, R1 and, with the same tensors under another model_type, Kimi K2: multi-head latent attention, leading dense
// layers, a shared expert, sigmoid scores with a correction among the best groups. Layers behind the last one predict further
// tokens and are left out.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.latent = true});
  config.Only("sliding_window", {});
  config.Only("moe_layer_freq", {1});
  config.Only("scoring_func", {"sigmoid"});
  config.Only("topk_method", {"noaux_tc"});
  config.Known(
      {"auto_map", "aux_loss_alpha", "ep_size", "num_nextn_predict_layers", "num_mtp_layers", "pretraining_tp", "seq_aux"});
  spec.rope_interleaved = config.BoolOr("rope_interleave", true);
  ReadRoutedExperts(config, spec);
  ReadLeadingDense(config, spec);
  ReadCorrectedRouter(config, spec, 2.5, /*groups_are_required=*/true);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.shared = "shared_experts"}); }

}  // namespace

Family DeepSeekV3Family() { return {"deepseek_v3", ReadSpec, MlpExpertTensor, TrunkTensors, LatentParts, IsBehindTheLastLayer}; }
Family KimiK2Family() { return {"kimi_k2", ReadSpec, MlpExpertTensor, TrunkTensors, LatentParts, IsBehindTheLastLayer}; }

}  // namespace moed
