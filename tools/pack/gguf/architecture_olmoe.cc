// olmoe: experts as wide as feed_forward_length says, whose probabilities are taken as they are.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "olmoe");
  spec.qk_norm = ModelSpec::QkNorm::kWhole;
  ReadOneFfnWidth(reader, spec);
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture OlmoeArchitecture() { return {.name = "olmoe", .model_type = "olmoe", .read_spec = ReadSpec}; }

}  // namespace moed
