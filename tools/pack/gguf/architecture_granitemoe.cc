// granitemoe (Granite 3 MoE): multipliers of embeddings, attention, residuals and logits.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

// 1 where it is absent or 0.
double Multiplier(GgufSpecReader& reader, std::string_view key) {
  const double value = reader.NumberOr(key, 1, 0, 1e6);
  return value == 0 ? 1 : value;
}

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "granitemoe");
  spec.embedding_scale = Multiplier(reader, "embedding_scale");
  spec.residual_scale = Multiplier(reader, "residual_scale");
  spec.attention_scale = reader.NumberOr("attention.scale", 0, 0, 1e3);
  spec.logits_scale = 1 / Multiplier(reader, "logit_scale");
  ReadOneFfnWidth(reader, spec);
  reader.Only("expert_shared_feed_forward_length", {0});
  spec.norm_topk_prob = true;
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture GraniteMoeArchitecture() {
  return {.name = "granitemoe", .model_type = "granitemoe", .read_spec = ReadSpec, .pairs_neighbours = true};
}

}  // namespace moed
