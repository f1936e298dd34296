// Mixtral: every layer has experts, the chosen probabilities are divided by their sum.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config);
  if (const int window = config.IntOr("sliding_window", 0, 1, INT32_MAX); window > 0 && window < spec.max_positions) {
    spec.windows.assign(static_cast<size_t>(spec.layers), window);  // the first fine-tunes say 4096
  }
  spec.experts = config.Int(config.Spelling("num_local_experts", "num_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("intermediate_size", 1, 1 << 20);
  spec.norm_topk_prob = true;
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {.block = kSparseBlock}); }

}  // namespace

Family MixtralFamily() { return {"mixtral", ReadSpec, SparseBlockExpertTensor, TrunkTensors}; }

}  // namespace moed
