#include "core/model/delta_net_checkpoint.h"

#include "core/base/status.h"
#include "core/kernels/recurrence.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

constexpr std::string_view kRecurrent = "linear_attention";

std::vector<std::string> EveryNthAttends(int layers, int interval) {
  std::vector<std::string> types;
  for (int layer = 0; layer < layers; ++layer) {
    types.emplace_back((layer + 1) % interval == 0 ? std::string_view("full_attention") : kRecurrent);
  }
  return types;
}

}  // namespace

void ReadDeltaNet(ConfigReader& config, ModelSpec& spec) {
  static constexpr LayerKind kKinds[] = {{kRecurrent, true}, {"full_attention", false}};
  const int interval = config.IntOr("full_attention_interval", 4, 1, 4096);
  ReadRecurrentLayers(config, spec, kKinds, EveryNthAttends(spec.layers, interval));
  spec.delta_net = {.key_heads = config.Int("linear_num_key_heads", 1, 1024),
                    .value_heads = config.Int("linear_num_value_heads", 1, 1024),
                    .key_dim = config.Int("linear_key_head_dim", 1, 1024),
                    .value_dim = config.Int("linear_value_head_dim", 1, 1024),
                    .taps = config.Int("linear_conv_kernel_dim", 2, kMostTaps)};
  config.Only("mamba_ssm_dtype", {"float32"});
  config.Only("output_gate_type", {"silu", "swish"});
}

void ReadGatedModel(ConfigReader& config, ModelSpec& spec) {
  config.Only("sliding_window", {});
  config.Only("attn_output_gate", {true});
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.attention_gate = true;
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 20);
  spec.shared_ffn = config.Int("shared_expert_intermediate_size", 1, 1 << 20);
  spec.shared_gate = true;
}

std::string DeltaNetPrefix(int layer) { return StrCat("model.layers.", layer, ".linear_attn."); }

std::vector<TensorPart> DeltaNetParts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (spec.IsRecurrent(LayerId(layer))) {
      const DeltaNetShape& shape = *spec.delta_net;
      const std::string convolution = DeltaNetPrefix(layer) + "conv1d.";
      parts.push_back(TapsOf(convolution + "taps", convolution + "weight", shape.ConvolvedWidth(), shape.taps));
    } else {
      const std::string prefix = StrCat("model.layers.", layer, ".self_attn.q_proj.");
      const int width = spec.heads * spec.head_dim, head = spec.head_dim;
      const std::string whole = prefix + "weight";
      parts.push_back(PartOf(prefix + "query", width, spec.hidden, {whole, 2 * width, 0, head, 2 * head}));
      parts.push_back(PartOf(prefix + "gate", width, spec.hidden, {whole, 2 * width, head, head, 2 * head}));
    }
  }
  return parts;
}

bool IsMultiTokenPrediction(std::string_view checkpoint_name) { return checkpoint_name.starts_with("mtp."); }

}  // namespace moed
