// qwen3moe: RMS norm over each head of q and k; the chosen probabilities are divided by their sum.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "qwen3_moe");
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadFfnWidths(reader, spec);
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", true);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture Qwen3MoeArchitecture() { return {.name = "qwen3moe", .model_type = "qwen3_moe", .read_spec = ReadSpec}; }

}  // namespace moed
