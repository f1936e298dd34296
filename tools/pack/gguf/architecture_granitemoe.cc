// granitemoe (Granite 3 MoE): multipliers of embeddings, attention, residuals and logits.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/granite.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "granitemoe");
  ReadGgufGranite(reader, spec);
  reader.Only("expert_shared_feed_forward_length", {0});
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture GraniteMoeArchitecture() {
  return {.name = "granitemoe", .model_type = "granitemoe", .read_spec = ReadSpec, .pairs_neighbours = true};
}

}  // namespace moed
