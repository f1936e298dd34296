// lfm2moe (LFM2-MoE): short convolutions where a layer has no heads of keys and values. The factor of the experts' outputs has
// no key: it is the released models', 1.
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/kernels/recurrence.h"
#include "core/model/matrix_parts.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr GgufName kNames[] = {
    {"final_norm", "token_embd_norm.weight"}, {"k", "attn_k.weight"},
    {"k", "shortconv.in_proj.key"},           {"v", "attn_v.weight"},
    {"v", "shortconv.in_proj.value"},         {"o", "attn_output.weight"},
    {"o", "shortconv.out_proj.weight"},       {"attention_gate", "shortconv.in_proj.gate"},
    {"convolution", "shortconv.conv.taps"},
};

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "lfm2_moe", {.gating = true, .recurrent = true});
  spec.short_convolution = {.taps = reader.Int("shortconv.l_cache", 2, kMostTaps)};
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadFfnWidths(reader, spec);
  ReadCorrectedSigmoid(reader, spec);
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", true);
  spec.router_epsilon = 1e-6;
  return reader.Finish(std::move(spec));
}

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (!spec.IsRecurrent(LayerId(layer))) continue;
    const std::string convolution = StrCat("blk.", layer, ".shortconv.");
    AddShortConvolutionProjections(spec.hidden, convolution + "in_proj.", parts);
    parts.push_back(TapsOf(convolution + "conv.taps", convolution + "conv.weight", spec.hidden, spec.short_convolution->taps,
                           /*flat=*/true));
  }
  return parts;
}

}  // namespace

GgufArchitecture Lfm2MoeArchitecture() {
  return {.name = "lfm2moe", .model_type = "lfm2_moe", .read_spec = ReadSpec, .own_names = kNames, .parts = Parts};
}

}  // namespace moed
