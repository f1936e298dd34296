// glm4moe (GLM-4.5, GLM-4.6, the text part of those that see, Solar Open): sigmoid scores with a correction, leading dense
// layers, shared experts, a part of each head rotated, or all of it.
#include <string_view>

#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

// The norm before the experts has another name than elsewhere.
constexpr GgufName kNames[] = {{"ffn_norm", "post_attention_norm.weight"}};
constexpr std::string_view kMoreFamilies[] = {"glm4v_moe_text", "solar_open"};

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "glm4_moe", {.partial_rotary = true, .gating = true, .weights_scale = true});
  spec.qkv_bias = reader.Tensor("blk.0.attn_q.bias") != nullptr;
  if (reader.Tensor("blk.0.attn_q_norm.weight") != nullptr) spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_count", 0, kMostShared) * spec.expert_ffn;
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  ReadGroupedSigmoid(reader, spec);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture Glm4MoeArchitecture() {
  return {
      .name = "glm4moe", .model_type = "glm4_moe", .read_spec = ReadSpec, .own_names = kNames, .more_model_types = kMoreFamilies};
}

}  // namespace moed
