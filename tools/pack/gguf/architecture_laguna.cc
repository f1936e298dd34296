// laguna (Poolside's Laguna): layers with a window have heads of queries and a rotation of their own; YaRN is of the others. The
// gate's matrix says whether it is one of heads.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/status.h"
#include "core/model/laguna_layers.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr GgufName kNames[] = {{"attention_gate", "attn_gate.weight"}};

// Of the layers with a window, or of the others: all have as many heads.
int HeadsOfKind(GgufSpecReader& reader, const ModelSpec& spec, const std::vector<int>& heads, bool slides) {
  int of_kind = 0;
  for (int layer = 0; layer < spec.layers; ++layer) {
    if ((spec.WindowOf(LayerId(layer)) > 0) != slides) continue;
    const int own = heads[static_cast<size_t>(layer)];
    if (of_kind != 0 && own != of_kind) {
      reader.Fail(InvalidArgument("attention.head_count has both ", of_kind, " and ", own, " for layers which ",
                                  slides ? "have windows" : "see all positions"));
    }
    of_kind = own;
  }
  return of_kind == 0 ? heads.front() : of_kind;
}

// The released models say what the factor gives, which is what llama.cpp takes whatever the key says.
std::optional<YarnScaling> ReadYarn(GgufSpecReader& reader) {
  std::optional<YarnScaling> yarn = ReadGgufYarn(reader, true);
  const double usual = yarn ? yarn->attention_factor : 1;
  const double own = reader.NumberOr("rope.scaling.yarn_attn_factor", usual, 1e-3, 1e3);
  if (std::abs(own - usual) <= 1e-5) return yarn;
  reader.Fail(InvalidArgument("rope.scaling.yarn_attn_factor = ", own,
                              " is not supported; allowed: what rope.scaling.factor "
                              "gives, ",
                              usual));
  return yarn;
}

void ReadKindsOfLayers(GgufSpecReader& reader, ModelSpec& spec) {
  const std::vector<int> heads = reader.Ints("attention.head_count", static_cast<size_t>(spec.layers), 1, 1024);
  const int window = reader.IntOr("attention.sliding_window", 0, 0, INT32_MAX);
  std::vector<bool> slides(static_cast<size_t>(spec.layers));
  for (size_t layer = 0; layer < slides.size(); ++layer) slides[layer] = layer % 4 != 0;
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  if (reader.Has(kPattern)) slides = reader.LayersOr(kPattern, spec.layers, 4);
  if (window > 0 && std::ranges::find(slides, true) != slides.end()) {
    for (const bool slide : slides) spec.windows.push_back(slide ? window : 0);
  }
  const auto dims = [&](std::string_view key) { return reader.IntOr(key, spec.head_dim, 2, spec.head_dim); };
  const double theta = reader.NumberOr("rope.freq_base_swa", spec.rope_theta, 1, 1e15);
  const LagunaLayers full = {HeadsOfKind(reader, spec, heads, false),
                             {.theta = spec.rope_theta, .yarn = ReadYarn(reader), .rotary_dims = dims("rope.dimension_count")}};
  const LagunaLayers sliding = {HeadsOfKind(reader, spec, heads, true),
                                {.theta = theta, .rotary_dims = dims("rope.dimension_count_swa")}};
  SetLagunaLayers(spec, full, sliding);
}

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(
      reader, "laguna",
      {.window = true, .rope_scaling = true, .gating = true, .weights_scale = true, .heads = true, .query_heads = true});
  spec.kv_heads = reader.Int("attention.head_count_kv", 1, 1024);
  spec.head_dim = reader.Int("attention.key_length", 2, 1024);
  reader.Only("attention.value_length", {static_cast<double>(spec.head_dim)});
  ReadKindsOfLayers(reader, spec);
  const GgufTensor* const gate = reader.Tensor("blk.0.attn_gate.weight");
  const HeadShape first = spec.HeadsOf(LayerId(0));
  SetLagunaTraits(spec, gate != nullptr && gate->shape.size() == 2 &&
                            gate->shape[0] == static_cast<uint64_t>(spec.QueryHeads(first)) && first.head_dim > 1);
  ReadCorrectedSigmoid(reader, spec);
  ReadFfnWidths(reader, spec);
  reader.Only("expert_shared_count", {1});
  spec.shared_ffn = reader.Int("expert_shared_feed_forward_length", 1, 1 << 20);
  reader.Only("expert_weights_norm", {1});
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture LagunaArchitecture() {
  return {.name = "laguna", .model_type = "laguna", .read_spec = ReadSpec, .own_names = kNames};
}

}  // namespace moed
