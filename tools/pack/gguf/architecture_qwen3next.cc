// qwen3next: Gated DeltaNets and gated attention. Norms and decays are written as they are used.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/delta_net.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  return reader.Finish(ReadGgufDeltaNet(reader, "qwen3_next"));
}

}  // namespace

GgufArchitecture Qwen3NextArchitecture() {
  return {.name = "qwen3next",
          .model_type = "qwen3_next",
          .read_spec = ReadSpec,
          .own_names = GgufDeltaNetNames(),
          .parts = GgufDeltaNetParts};
}

}  // namespace moed
