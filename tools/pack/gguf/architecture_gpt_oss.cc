// gpt-oss: a sink for each head, a sliding window in every other layer from the first on, YaRN, biases everywhere. The limits of
// its SwiGLU have no keys, nor has YaRN's `truncate`: they are the released models'.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr GgufName kNames[] = {{"ffn_norm", "post_attention_norm.weight"},
                               {"sinks", "attn_sinks.weight"},
                               {"expert_bias.gate", "ffn_gate_exps.bias"},
                               {"expert_bias.up", "ffn_up_exps.bias"},
                               {"expert_bias.down", "ffn_down_exps.bias"}};

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "gpt_oss", {.window = true, .rope_scaling = true});
  spec.yarn = ReadGgufYarn(reader, false);
  reader.Only("rope.scaling.yarn_attn_factor", {1});
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
