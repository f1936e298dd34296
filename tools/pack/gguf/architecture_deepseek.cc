// deepseek (DeepSeekMoE-16B): leading dense layers, shared experts without a gate, probabilities as they are.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "deepseek");
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_count", 0, kMostShared) * spec.expert_ffn;
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture DeepSeekArchitecture() {
  return {.name = "deepseek", .model_type = "deepseek", .read_spec = ReadSpec, .pairs_neighbours = true};
}

}  // namespace moed
