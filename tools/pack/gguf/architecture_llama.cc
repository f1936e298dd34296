// llama with experts: Mixtral. Every layer has experts, the chosen probabilities are divided by their sum. Of Llama 3.1's
// frequencies there is a tensor of what divides them.
#include <string_view>

#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr std::string_view kOfSpec[] = {kGgufRopeFactors};

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "mixtral");
  ReadGgufRopeFactors(reader, spec);
  ReadOneFfnWidth(reader, spec);
  reader.Only("expert_shared_count", {0});
  spec.norm_topk_prob = true;
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture LlamaArchitecture() {
  return {.name = "llama", .model_type = "mixtral", .read_spec = ReadSpec, .pairs_neighbours = true, .of_spec = kOfSpec};
}

}  // namespace moed
