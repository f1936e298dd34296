// qwen2moe: a gated shared expert, biases on q, k and v where the file has them.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "qwen2_moe");
  spec.qkv_bias = reader.Tensor("blk.0.attn_q.bias") != nullptr;
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_feed_forward_length", 1, 1 << 20);
  spec.shared_gate = true;
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture Qwen2MoeArchitecture() { return {.name = "qwen2moe", .model_type = "qwen2_moe", .read_spec = ReadSpec}; }

}  // namespace moed
