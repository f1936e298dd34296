// smallthinker: the router reads what the layer reads, gated ReLU in the experts. Where there is a window it is one of 4096, and
// every fourth layer, from the first on, has none and does not turn its heads.
#include <utility>

#include "core/base/status.h"
#include "core/model/smallthinker_traits.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kWindow = 4096, kPeriod = 4;  // of llama.cpp, whatever the keys say
constexpr int kSoftmax = 1, kSigmoid = 2;   // expert_gating_func

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "smallthinker", {.window = true, .gating = true});
  reader.Only("attention.sliding_window", {0, kWindow});
  reader.Only("attention.sliding_window_pattern", {kPeriod});
  reader.Only("rope.freq_base_swa", {spec.rope_theta});
  const bool windows = reader.IntOr("attention.sliding_window", 0, 0, INT32_MAX) > 0;
  std::vector<bool> turns(static_cast<size_t>(spec.layers), true), slides(static_cast<size_t>(spec.layers));
  for (size_t layer = 0; layer < turns.size() && windows; ++layer) turns[layer] = slides[layer] = layer % kPeriod != 0;
  SetSmallThinkerLayers(spec, turns, slides, kWindow);
  reader.Only("expert_gating_func", {kSoftmax, kSigmoid});
  const bool softmax = reader.IntOr("expert_gating_func", kSoftmax, kSoftmax, kSigmoid) == kSoftmax;
  SetSmallThinkerTraits(spec, softmax ? RouterScoring::kSoftmax : RouterScoring::kSigmoid);
  ReadOneFfnWidth(reader, spec);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture SmallThinkerArchitecture() {
  return {.name = "smallthinker", .model_type = "smallthinker", .read_spec = ReadSpec};
}

}  // namespace moed
