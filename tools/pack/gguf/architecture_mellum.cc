// mellum (Mellum 2): windows in some layers, which turn by frequencies of their own. YaRN is of the others: the file has no key
// that says so, the released models have it so.
#include "core/model/decoder_config.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "mellum", {.window = true, .rope_scaling = true});
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadFfnWidths(reader, spec);
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", true);
  const int window = reader.IntOr("attention.sliding_window", 0, 0, INT32_MAX);
  const std::vector<bool> slides = reader.LayersOr("attention.sliding_window_pattern", spec.layers, 4);
  if (window > 0) {
    for (const bool slide : slides) spec.windows.push_back(slide ? window : 0);
  }
  const Rotation full = {spec.rope_theta, ReadGgufYarn(reader, true)};
  reader.Only("rope.scaling.yarn_attn_factor", {1});
  SetLayerRotations(spec, {reader.NumberOr("rope.freq_base_swa", spec.rope_theta, 1, 1e15)}, full);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture MellumArchitecture() { return {.name = "mellum", .model_type = "mellum", .read_spec = ReadSpec}; }

}  // namespace moed
