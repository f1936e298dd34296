// dots1 (dots.llm1): norms of each head, sigmoid scores with a correction, leading dense layers, shared experts.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "dots1", {.gating = true, .weights_scale = true});
  spec.qkv_bias = reader.Tensor("blk.0.attn_q.bias") != nullptr;
  spec.o_bias = reader.Tensor("blk.0.attn_output.bias") != nullptr;
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_count", 0, kMostShared) * spec.expert_ffn;
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  ReadGroupedSigmoid(reader, spec);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture Dots1Architecture() { return {.name = "dots1", .model_type = "dots1", .read_spec = ReadSpec}; }

}  // namespace moed
