// qwen3moe: RMS norm over each head of q and k; the chosen probabilities are divided by their sum.
#include <algorithm>

#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "qwen3_moe");
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.expert_ffn = reader.Int("expert_feed_forward_length", 1, 1 << 20);
  const int dense_ffn = reader.IntOr("feed_forward_length", 0, 0, 1 << 20);
  if (std::ranges::count(spec.moe, false) > 0) spec.dense_ffn = dense_ffn;
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", true);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture Qwen3MoeArchitecture() { return {.name = "qwen3moe", .model_type = "qwen3_moe", .read_spec = ReadSpec}; }

}  // namespace moed
