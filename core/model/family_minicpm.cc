// MiniCPM-MoE: Mixtral's router, with multipliers of embeddings, of what blocks add, and of the logits. Experts are w1, w2, w3 or
// gate_proj, down_proj, up_proj.
#include <cmath>

#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.rope_theta = 10000});
  config.Only("sliding_window", {});
  config.Known({"auto_map"});
  spec.tied_embeddings = config.BoolOr("tie_word_embeddings", true);
  spec.embedding_scale = config.NumberOr("scale_emb", 1, 1e-6, 1e6);
  spec.residual_scale = config.NumberOr("scale_depth", 1, 1e-6, 1e6) / std::sqrt(static_cast<double>(spec.layers));
  spec.logits_scale = config.NumberOr("dim_model_base", 1, 1, 1 << 20) / spec.hidden;
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("intermediate_size", 1, 1 << 20);
  spec.norm_topk_prob = true;
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) { return DecoderTensors(spec, {}); }

std::string Released(LayerId layer, int expert, ExpertPart part) {
  const std::string_view name = part == ExpertPart::kGate ? "w1" : part == ExpertPart::kUp ? "w3" : "w2";
  return ExpertTensorName(layer, "mlp", expert, name);
}

// The other spelling, each the whole of a tensor.
std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (const LayerId layer : spec.MoeLayers()) {
    for (int expert = 0; expert < spec.experts; ++expert) {
      for (const ExpertPart part : {ExpertPart::kGate, ExpertPart::kUp, ExpertPart::kDown}) {
        const bool down = part == ExpertPart::kDown;
        const int rows = down ? spec.hidden : spec.expert_ffn, cols = down ? spec.expert_ffn : spec.hidden;
        parts.push_back(PartOf(MlpExpertTensor(layer, expert, part), rows, cols, {Released(layer, expert, part), rows}));
      }
    }
  }
  return parts;
}

}  // namespace

Family MiniCpmFamily() { return {"minicpm", ReadSpec, MlpExpertTensor, TrunkTensors, Parts}; }

}  // namespace moed
