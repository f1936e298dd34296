// minimax-m2: sigmoid scores with a correction, RMS norm over the whole width of q and of k, a part of each head rotated.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "minimax_m2", {.partial_rotary = true, .gating = true});
  spec.qk_norm = ModelSpec::QkNorm::kWhole;
  ReadOneFfnWidth(reader, spec);
  spec.norm_topk_prob = true;
  ReadCorrectedSigmoid(reader, spec);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture MiniMaxM2Architecture() { return {.name = "minimax-m2", .model_type = "minimax_m2", .read_spec = ReadSpec}; }

}  // namespace moed
