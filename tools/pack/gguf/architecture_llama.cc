// llama with experts: Mixtral. Every layer has experts, the chosen probabilities are divided by their sum.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "mixtral");
  ReadOneFfnWidth(reader, spec);
  reader.Only("expert_shared_count", {0});
  spec.norm_topk_prob = true;
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture LlamaArchitecture() {
  return {.name = "llama", .model_type = "mixtral", .read_spec = ReadSpec, .pairs_neighbours = true};
}

}  // namespace moed
