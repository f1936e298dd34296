// granitemoe (Granite 3 MoE, with a shared expert or without): multipliers of embeddings, attention, residuals and logits.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/granite.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr std::string_view kMoreFamilies[] = {"granitemoeshared"};

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  const int shared_ffn = reader.IntOr("expert_shared_feed_forward_length", 0, 0, 1 << 20);
  ModelSpec spec = ReadGgufDecoder(reader, shared_ffn > 0 ? kMoreFamilies[0] : "granitemoe");
  ReadGgufGranite(reader, spec);
  spec.shared_ffn = shared_ffn;
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture GraniteMoeArchitecture() {
  return {.name = "granitemoe",
          .model_type = "granitemoe",
          .read_spec = ReadSpec,
          .pairs_neighbours = true,
          .more_model_types = kMoreFamilies};
}

}  // namespace moed
