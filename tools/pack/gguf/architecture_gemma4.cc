// gemma4 (Gemma 4 26B-A4B, the text part): layers with a window and those that see all have heads and rotations of their own. How
// many pairs of the latter turn is said by a tensor of the factors that divide their frequencies.
#include <algorithm>

#include "core/base/status.h"
#include "core/model/gemma4_traits.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr std::string_view kFactors = "rope_freqs.weight";
constexpr std::string_view kOfSpec[] = {kFactors};
constexpr float kNeverTurns = 1e29f;  // converters write 1e30

constexpr GgufName kNames[] = {
    {"attn_post_norm", "post_attention_norm.weight"},
    {"ffn_norm", "pre_ffw_norm_2.weight"},
    {"router_norm", "ffn_gate_inp.scale"},
    {"expert_scales", "ffn_down_exps.scale"},
    {"shared_norm", "ffn_norm.weight"},
    {"shared.gate", "ffn_gate.weight"},
    {"shared.up", "ffn_up.weight"},
    {"shared.down", "ffn_down.weight"},
    {"shared_post_norm", "post_ffw_norm_1.weight"},
    {"experts_post_norm", "post_ffw_norm_2.weight"},
    {"ffn_post_norm", "post_ffw_norm.weight"},
    {"layer_scale", "layer_output_scale.weight"},
};

// Of the layers that see all: so many factors are 1, the others as good as infinite.
absl::StatusOr<int> RotatedPairs(const GgufSpecReader& reader, int head_dim) {
  MOED_ASSIGN_OR_RETURN(const std::vector<float> factors, reader.Floats(kFactors, static_cast<size_t>(head_dim / 2)));
  const auto still = std::ranges::find_if(factors, [](float factor) { return factor != 1; });
  if (still == factors.begin() || std::any_of(still, factors.end(), [](float factor) { return !(factor >= kNeverTurns); })) {
    return InvalidArgument("tensor \"", kFactors, "\" holds other numbers than ones and, behind them, 1e30");
  }
  return still == factors.end() ? 0 : static_cast<int>(still - factors.begin());
}

// `slides`: whether those are the layers with a window.
HeadShape ReadHeads(GgufSpecReader& reader, const std::vector<bool>& slides, bool of_windows) {
  const std::string suffix = of_windows ? "_swa" : "";
  const std::vector<int> kv_heads = reader.Ints("attention.head_count_kv", slides.size(), 1, 1024);
  const auto first = static_cast<size_t>(std::ranges::find(slides, of_windows) - slides.begin());
  HeadShape shape = {.head_dim = reader.Int("attention.key_length" + suffix, 2, 1024)};
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    reader.Only(key + suffix, {static_cast<double>(shape.head_dim)});
  }
  if (first == slides.size()) return shape;
  shape.kv_heads = kv_heads[first];
  shape.values_are_keys = reader.Tensor(StrCat("blk.", first, ".attn_v.weight")) == nullptr;
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    if (slides[layer] != of_windows || kv_heads[layer] == shape.kv_heads) continue;
    reader.Fail(InvalidArgument("attention.head_count_kv differs between layers ", first, " and ", layer, ", which ",
                                of_windows ? "have windows" : "see all positions"));
  }
  return shape;
}

void ReadKindsOfLayers(GgufSpecReader& reader, ModelSpec& spec) {
  const int window = reader.Int("attention.sliding_window", 1, INT32_MAX);
  const std::vector<bool> slides = reader.LayersOr("attention.sliding_window_pattern", spec.layers, 6);
  if (slides.back()) reader.Fail(InvalidArgument("attention.sliding_window_pattern: the last layer has a window"));
  const HeadShape full = ReadHeads(reader, slides, false), sliding = ReadHeads(reader, slides, true);
  spec.kv_heads = full.kv_heads;
  spec.head_dim = full.head_dim;
  spec.values_are_keys = full.values_are_keys;
  const absl::StatusOr<int> pairs = RotatedPairs(reader, full.head_dim);
  if (!pairs.ok()) reader.Fail(pairs.status());
  spec.rotated_pairs = pairs.value_or(0);
  const double theta = reader.Number("rope.freq_base_swa", 1, 1e15);
  if (std::ranges::find(slides, true) == slides.end()) return;
  spec.more_rotations = {{.theta = theta}};
  spec.more_heads = {sliding};
  for (const bool slide : slides) {
    spec.windows.push_back(slide ? window : 0);
    spec.rotations.push_back(slide ? 1 : 0);
  }
}

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "gemma4_text", {.window = true, .heads = true});
  reader.Only("embedding_length_per_layer_input", {0});
  reader.Only("attention.shared_kv_layers", {0});
  ReadKindsOfLayers(reader, spec);
  SetGemma4Traits(spec);
  spec.logits_cap = reader.NumberOr("final_logit_softcapping", 0, 0, 1e6);
  spec.expert_ffn = reader.Int("expert_feed_forward_length", 1, 1 << 20);
  spec.shared_ffn = reader.Int("feed_forward_length", 1, 1 << 20);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture Gemma4Architecture() {
  return {.name = "gemma4", .model_type = "gemma4_text", .read_spec = ReadSpec, .own_names = kNames, .of_spec = kOfSpec};
}

}  // namespace moed
