// hy_v3 (Hy3): sigmoid scores with a correction, leading dense layers, a shared expert.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr GgufName kNames[] = {{"router_correction", "exp_probs_b.bias"}, {"router_correction", "exp_probs_b"}};

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "hy_v3", {.gating = true, .weights_scale = true});
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.IntOr("expert_shared_feed_forward_length", spec.expert_ffn, 1, 1 << 20);
  reader.IntOr("expert_shared_count", 1, 0, INT32_MAX);  // what the width says already
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  ReadCorrectedSigmoid(reader, spec);
  spec.router_epsilon = 1e-20;
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture HyV3Architecture() {
  return {.name = "hy_v3", .model_type = "hy_v3", .read_spec = ReadSpec, .own_names = kNames};
}

}  // namespace moed
