// cohere2moe (Command A+): one norm a layer for both its blocks. Which kind of norm is said by the name of its epsilon. The
// average with the shared experts has no key: it is that of all files.
#include <algorithm>
#include <string_view>
#include <vector>

#include "core/kernels/router.h"
#include "core/model/decoder_config.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr std::string_view kNormEps = "attention.layer_norm_epsilon";
constexpr int kMostShared = 64, kSigmoid = 2;

constexpr GgufName kNames[] = {{"attn_norm_bias", "attn_norm.weight"}, {"final_norm_bias", "output_norm.weight"}};

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  const bool layer_norm = reader.Has(kNormEps);
  ModelSpec spec =
      ReadGgufDecoder(reader, "cohere2_moe", {.norm_eps = layer_norm ? kNormEps : kGgufRmsEps, .window = true, .gating = true});
  spec.layer_norm = layer_norm;
  spec.parallel = spec.rope_interleaved = true;
  spec.logits_scale = reader.Number("logit_scale", 1e-6, 1e6);
  ReadFfnWidths(reader, spec);
  const int shared = reader.IntOr("expert_shared_count", 0, 0, kMostShared);
  if (shared > 0) {
    spec.shared_ffn = reader.IntOr("expert_shared_feed_forward_length", shared * spec.expert_ffn, 1, 1 << 20);
    spec.router_scale = spec.shared_scale = 0.5;
  }
  const bool sigmoid = reader.IntOr("expert_gating_func", kSigmoid, 1, kSigmoid) == kSigmoid;
  if (sigmoid) spec.router_scoring = RouterScoring::kSigmoidOfChosen;
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  const int window = reader.Int("attention.sliding_window", 1, INT32_MAX);
  std::vector<bool> rotate = reader.LayersOr("attention.sliding_window_pattern", spec.layers, 4);
  for (const bool slides : rotate) spec.windows.push_back(slides ? window : 0);
  if (std::ranges::find(rotate, true) == rotate.end()) spec.windows.clear();
  for (size_t layer = 0; layer < rotate.size(); ++layer) rotate[layer] = rotate[layer] || !spec.moe[layer];
  SetRotating(spec, rotate);
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture Cohere2MoeArchitecture() {
  return {.name = "cohere2moe", .model_type = "cohere2_moe", .read_spec = ReadSpec, .own_names = kNames};
}

}  // namespace moed
