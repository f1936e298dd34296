#include "core/model/granite_checkpoint.h"

#include "core/base/status.h"
#include "core/model/matrix_parts.h"

namespace moed {

void ReadGranite(ConfigReader& config, ModelSpec& spec) {
  config.Only("head_dim", {spec.hidden / spec.heads});
  config.Only("sliding_window", {});
  config.Only("normalization_function", {"rmsnorm"});
  config.Only("init_method", {"mup"});
  spec.embedding_scale = config.NumberOr("embedding_multiplier", 1, 1e-6, 1e6);
  spec.attention_scale = config.NumberOr("attention_multiplier", 1, 1e-6, 1e3);
  spec.residual_scale = config.NumberOr("residual_multiplier", 1, 1e-6, 1e6);
  spec.logits_scale = 1 / config.NumberOr("logits_scaling", 1, 1e-6, 1e6);
  spec.experts = config.Int(config.Spelling("num_local_experts", "num_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("intermediate_size", 1, 1 << 20);
  spec.norm_topk_prob = true;  // its softmax is over the chosen ones
}

std::vector<TensorPart> GraniteExpertParts(const ModelSpec& spec) {
  const int64_t hidden = spec.hidden, ffn = spec.expert_ffn;
  std::vector<TensorPart> parts;
  for (int layer = 0; layer < spec.layers; ++layer) {
    const std::string prefix = StrCat("model.layers.", layer, ".", kSparseBlock, ".");
    for (int64_t expert = 0; expert < spec.experts; ++expert) {
      for (const ExpertPart part : {ExpertPart::kGate, ExpertPart::kUp, ExpertPart::kDown}) {
        const bool down = part == ExpertPart::kDown;
        const int64_t first = expert * 2 * ffn + (part == ExpertPart::kUp ? ffn : 0);  // row of input_linear
        // Not within the braces: there g++ 12 destroys what the other members hold.
        const std::string_view whole = down ? "output_linear.weight" : "input_linear.weight";
        const std::vector<uint64_t> shape =
            down ? ShapeOf({spec.experts, hidden, ffn}) : ShapeOf({spec.experts, 2 * ffn, hidden});
        const int64_t offset = down ? expert * hidden * ffn : first * hidden;
        parts.push_back({.name = MlpExpertTensor(LayerId(layer), static_cast<int>(expert), part),
                         .whole = StrCat(prefix, whole),
                         .whole_shape = shape,
                         .rows = down ? spec.hidden : spec.expert_ffn,
                         .cols = down ? spec.expert_ffn : spec.hidden,
                         .offset = offset,
                         .row_stride = down ? ffn : hidden});
      }
    }
  }
  return parts;
}

void AddGraniteShared(const ModelSpec& spec, int layer, std::vector<TensorPart>& parts) {
  const std::string prefix = StrCat("model.layers.", layer, ".");
  const std::string name = StrCat(prefix, kGraniteNames.block, ".", kGraniteNames.shared, ".");
  const std::string into = prefix + "shared_mlp.input_linear.weight";
  const int ffn = spec.shared_ffn;
  parts.push_back(PartOf(name + "gate_proj.weight", ffn, spec.hidden, {into, 2 * ffn, 0}));
  parts.push_back(PartOf(name + "up_proj.weight", ffn, spec.hidden, {into, 2 * ffn, ffn}));
  parts.push_back(
      PartOf(name + "down_proj.weight", spec.hidden, ffn, {prefix + "shared_mlp.output_linear.weight", spec.hidden, 0}));
}

}  // namespace moed
