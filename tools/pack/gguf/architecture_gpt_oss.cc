// gpt-oss: a sink for each head, a sliding window in every other layer from the first on, YaRN, biases everywhere. The limits of
// its SwiGLU have no keys, nor has YaRN's `truncate`: they are the released models'.
#include <cmath>

#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr GgufName kNames[] = {{"ffn_norm", "post_attention_norm.weight"},
                               {"sinks", "attn_sinks.weight"},
                               {"expert_bias.gate", "ffn_gate_exps.bias"},
                               {"expert_bias.up", "ffn_up_exps.bias"},
                               {"expert_bias.down", "ffn_down_exps.bias"}};

YarnScaling ReadYarn(GgufSpecReader& reader) {
  YarnScaling yarn;
  yarn.factor = reader.Number("rope.scaling.factor", 1, 1e6);
  yarn.original_positions = reader.Int("rope.scaling.original_context_length", 1, 1 << 24);
  yarn.beta_fast = reader.NumberOr("rope.scaling.yarn_beta_fast", yarn.beta_fast, 1e-6, 1e6);
  yarn.beta_slow = reader.NumberOr("rope.scaling.yarn_beta_slow", yarn.beta_slow, 1e-6, 1e6);
  yarn.attention_factor = yarn.factor <= 1 ? 1.0 : 0.1 * std::log(yarn.factor) + 1.0;
  yarn.truncate = false;
  reader.Only("rope.scaling.yarn_ext_factor", {1});
  reader.Only("rope.scaling.yarn_attn_factor", {1});
  return yarn;
}

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "gpt_oss", {.window = true, .rope_scaling = true});
  const std::string scaling = reader.StringOr("rope.scaling.type", "none");
  reader.OnlyText("rope.scaling.type", {"none", "yarn"});
  if (scaling == "yarn") spec.yarn = ReadYarn(reader);
  const int window = reader.Int("attention.sliding_window", 1, INT32_MAX);
  for (int layer = 0; layer < spec.layers; ++layer) spec.windows.push_back(layer % 2 == 0 ? window : 0);
  spec.qkv_bias = spec.o_bias = spec.attention_sinks = spec.router_bias = spec.expert_bias = true;
  spec.swiglu_limits = {.alpha = 1.702, .limit = 7.0};
  ReadFfnWidths(reader, spec);
  spec.norm_topk_prob = true;
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture GptOssArchitecture() {
  return {.name = "gpt-oss", .model_type = "gpt_oss", .read_spec = ReadSpec, .own_names = kNames};
}

}  // namespace moed
