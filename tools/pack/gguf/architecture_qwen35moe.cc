// qwen35moe (Qwen3.5-MoE, Qwen3.6-MoE, the text part): as qwen3next with projections of its own, and the value heads of
// different key heads side by side.
#include <utility>

#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/delta_net.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDeltaNet(reader, "qwen3_5_moe_text");
  if (spec.delta_net) spec.delta_net->key_heads_in_turn = true;
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture Qwen35MoeArchitecture() {
  return {.name = "qwen35moe",
          .model_type = "qwen3_5_moe_text",
          .read_spec = ReadSpec,
          .own_names = GgufDeltaNetNames(),
          .parts = GgufDeltaNetParts};
}

}  // namespace moed
