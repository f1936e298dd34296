// hunyuan-moe (Hunyuan-A13B): a shared expert, RMS norm over each head of q and k after they are rotated. Its alpha is part of
// rope.freq_base.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "hunyuan_v1_moe");
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.qk_norm_after_rope = true;
  ReadOneFfnWidth(reader, spec);
  spec.shared_ffn = reader.IntOr("expert_shared_feed_forward_length", spec.expert_ffn, 1, 1 << 20);
  reader.Only("expert_shared_count", {1});
  spec.norm_topk_prob = true;
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture HunyuanMoeArchitecture() {
  return {.name = "hunyuan-moe", .model_type = "hunyuan_v1_moe", .read_spec = ReadSpec};
}

}  // namespace moed
