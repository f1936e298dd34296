// deepseek2 (DeepSeek-V2, V3 and R1, Kimi K2, GLM-4.7-Flash): multi-head latent attention, leading dense layers, shared experts.
// The router tells the generations apart: probabilities, or sigmoid scores with a correction. YaRN's two magnitudes have one key,
// which is right for all released models.
#include <algorithm>

#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/latent_attention.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;
constexpr std::string_view kMoreFamilies[] = {"deepseek_v3", "kimi_k2", "glm4_moe_lite"};

bool HasCorrection(const GgufSpecReader& reader) {
  return std::ranges::any_of(reader.model().tensors,
                             [](const auto& tensor) { return tensor.first.ends_with(".exp_probs_b.bias"); });
}

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  const bool corrected = HasCorrection(reader);
  ModelSpec spec = ReadGgufDecoder(reader, corrected ? "deepseek_v3" : "deepseek_v2",
                                   {.rope_scaling = true, .gating = corrected, .weights_scale = true, .latent = true});
  spec.rope_interleaved = true;
  ReadGgufLatentYarn(reader, spec);
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_count", 0, kMostShared) * spec.expert_ffn;
  if (corrected) {
    ReadGroupedSigmoid(reader, spec);
    spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  } else {
    ReadGroups(reader, spec);
    // As in config.json.
    spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
    if (spec.router_scale != 1 || spec.top_k == 1) reader.Only("expert_weights_norm", {0});
  }
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture DeepSeek2Architecture() {
  return {.name = "deepseek2",
          .model_type = "deepseek_v2",
          .read_spec = ReadSpec,
          .own_names = kGgufLatentNames,
          .more_model_types = kMoreFamilies,
          .parts = GgufLatentParts};
}

}  // namespace moed
