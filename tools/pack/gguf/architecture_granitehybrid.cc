// granitehybrid (Granite 4 with experts): Mamba-2 where a layer has no heads of keys and values, and a shared expert. The
// converter has no key for how long a text may be and writes 2^20.
#include <utility>

#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/granite.h"
#include "tools/pack/gguf/mamba2.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "granitemoehybrid", {.recurrent = true});
  ReadGgufMamba2(reader, spec);
  ReadGgufGranite(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_feed_forward_length", 1, 1 << 20);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture GraniteHybridArchitecture() {
  return {.name = "granitehybrid",
          .model_type = "granitemoehybrid",
          .read_spec = ReadSpec,
          .own_names = kGgufMamba2Names,
          .pairs_neighbours = true,
          .parts = GgufMamba2Parts};
}

}  // namespace moed
