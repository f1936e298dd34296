// deepseek2 (DeepSeek-V2, V3 and R1, Kimi K2, GLM-4.7-Flash): multi-head latent attention, leading dense layers, shared experts.
// The router tells the generations apart: probabilities, or sigmoid scores with a correction. YaRN's two magnitudes have one key,
// which is right for all released models.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/kernels/router.h"
#include "core/model/decoder_tensors.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;
constexpr std::string_view kMoreFamilies[] = {"deepseek_v3", "kimi_k2", "glm4_moe_lite"};

constexpr GgufName kNames[] = {
    {"q", "attn_q.weight"},           {"q", "attn_q_b.weight"},
    {"q_a", "attn_q_a.weight"},       {"q_a_norm", "attn_q_a_norm.weight"},
    {"kv_a", "attn_kv_a_mqa.weight"}, {"kv_a_norm", "attn_kv_a_norm.weight"},
    {"k_b", "attn_k_b.weight"},       {"v_b", "attn_v_b.weight"},
};

bool HasCorrection(const GgufSpecReader& reader) {
  return std::ranges::any_of(reader.model().tensors,
                             [](const auto& tensor) { return tensor.first.ends_with(".exp_probs_b.bias"); });
}

void ReadYarn(GgufSpecReader& reader, ModelSpec& spec) {
  spec.yarn = ReadGgufYarn(reader, true);
  reader.Only("rope.scaling.yarn_attn_factor", {1});
  const double all_dims = reader.NumberOr("rope.scaling.yarn_log_multiplier", 0, 0, 10) / 0.1;
  if (!spec.yarn) return;
  spec.yarn->attention_factor = 1;  // one magnitude divided by the other
  if (spec.yarn->factor <= 1 || all_dims == 0) return;
  const double magnitude = 0.1 * all_dims * std::log(spec.yarn->factor) + 1.0;
  spec.attention_scale = magnitude * magnitude * spec.AttentionScale();
}

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  const bool corrected = HasCorrection(reader);
  ModelSpec spec = ReadGgufDecoder(reader, corrected ? "deepseek_v3" : "deepseek_v2",
                                   {.rope_scaling = true, .gating = corrected, .weights_scale = true, .latent = true});
  spec.rope_interleaved = true;
  ReadYarn(reader, spec);
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_count", 0, kMostShared) * spec.expert_ffn;
  ReadGroups(reader, spec);
  if (corrected) {
    ReadCorrectedSigmoid(reader, spec);
    spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
    spec.router_group_rank = spec.router_groups > 1 ? GroupRank::kTwoLargestKeys : GroupRank::kLargestKey;
    spec.router_epsilon = 1e-20;
  } else {
    // As in config.json.
    spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
    if (spec.router_scale != 1 || spec.top_k == 1) reader.Only("expert_weights_norm", {0});
  }
  return reader.Finish(std::move(spec));
}

// The projections of keys and values, which the first files have in one tensor.
std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts = LatentParts(spec);  // of each layer the keys, then the values
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string layer = StrCat("blk.", i / 2, ".");
    parts[i].name = layer + (i % 2 == 0 ? "attn_k_b.weight" : "attn_v_b.weight");
    parts[i].whole = layer + "attn_kv_b.weight";
  }
  return parts;
}

}  // namespace

GgufArchitecture DeepSeek2Architecture() {
  return {.name = "deepseek2",
          .model_type = "deepseek_v2",
          .read_spec = ReadSpec,
          .own_names = kNames,
          .more_model_types = kMoreFamilies,
          .parts = Parts};
}

}  // namespace moed
