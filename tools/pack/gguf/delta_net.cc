#include "tools/pack/gguf/delta_net.h"

#include <string>
#include <utility>

#include "core/base/status.h"
#include "core/kernels/recurrence.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

constexpr GgufName kNames[] = {
    {"q", "attn_q.query"},
    {"q", "attn_qkv.q"},
    {"k", "attn_k.weight"},
    {"k", "attn_qkv.k"},
    {"v", "attn_v.weight"},
    {"v", "attn_qkv.v"},
    {"o", "attn_output.weight"},
    {"o", "ssm_out.weight"},
    {"attention_gate", "attn_q.gate"},
    {"attention_gate", "attn_gate.weight"},
    {"ffn_norm", "post_attention_norm.weight"},
    {"delta.convolution", "ssm_conv1d.taps"},
    {"delta.a", "ssm_alpha.weight"},
    {"delta.a", "ssm_ba.a"},
    {"delta.b", "ssm_beta.weight"},
    {"delta.b", "ssm_ba.b"},
    {"delta.bias", "ssm_dt.bias"},
    {"delta.decay_rate", "ssm_a"},
    {"delta.norm", "ssm_norm.weight"},
};

void AddRecurrent(const ModelSpec& spec, const std::string& layer, std::vector<TensorPart>& parts) {
  const DeltaNetShape& shape = *spec.delta_net;
  const int keys = shape.KeyWidth(), all = shape.ConvolvedWidth(), together = shape.value_heads / shape.key_heads;
  const std::string mixed = layer + "attn_qkv.", rates = layer + "ssm_ba.", convolution = layer + "ssm_conv1d.";
  parts.push_back(PartOf(mixed + "q", keys, spec.hidden, {mixed + "weight", all}));
  parts.push_back(PartOf(mixed + "k", keys, spec.hidden, {mixed + "weight", all, keys}));
  parts.push_back(PartOf(mixed + "v", shape.ValueWidth(), spec.hidden, {mixed + "weight", all, 2 * keys}));
  for (const auto& [name, first] : {std::pair("b", 0), std::pair("a", together)}) {
    const RowsOf from = {rates + "weight", 2 * shape.value_heads, first, together, 2 * together};
    parts.push_back(PartOf(rates + name, shape.value_heads, spec.hidden, from));
  }
  parts.push_back(TapsOf(convolution + "taps", convolution + "weight", all, shape.taps, /*flat=*/true));
}

}  // namespace

ModelSpec ReadGgufDeltaNet(GgufSpecReader& reader, std::string_view family) {
  ModelSpec spec = ReadGgufDecoder(reader, family, {.partial_rotary = true});
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.attention_gate = true;
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_feed_forward_length", 1, 1 << 20);
  spec.shared_gate = true;
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", true);

  constexpr std::string_view kLayers = "attention.recurrent_layers", kInterval = "full_attention_interval";
  reader.IntOr(kInterval, 4, 1, 4096);
  spec.recurrent = reader.LayersOr(reader.Has(kLayers) ? kLayers : kInterval, spec.layers, 4);
  DeltaNetShape shape = {.key_heads = reader.Int("ssm.group_count", 1, 1024),
                         .value_heads = reader.Int("ssm.time_step_rank", 1, 1024),
                         .key_dim = reader.Int("ssm.state_size", 1, 1024),
                         .taps = reader.Int("ssm.conv_kernel", 2, kMostTaps)};
  const int inner = reader.Int("ssm.inner_size", 1, 1 << 20);
  if (inner % shape.value_heads != 0) {
    reader.Fail(InvalidArgument("ssm.inner_size = ", inner, " is no multiple of ssm.time_step_rank = ", shape.value_heads));
  }
  shape.value_dim = inner / shape.value_heads;
  spec.delta_net = shape;
  return spec;
}

std::span<const GgufName> GgufDeltaNetNames() { return kNames; }

std::vector<TensorPart> GgufDeltaNetParts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (int index = 0; index < spec.layers; ++index) {
    const std::string layer = StrCat("blk.", index, ".");
    if (spec.IsRecurrent(LayerId(index))) {
      AddRecurrent(spec, layer, parts);
      continue;
    }
    const int width = spec.heads * spec.head_dim, head = spec.head_dim;
    const std::string queries = layer + "attn_q.", whole = queries + "weight";
    parts.push_back(PartOf(queries + "query", width, spec.hidden, {whole, 2 * width, 0, head, 2 * head}));
    parts.push_back(PartOf(queries + "gate", width, spec.hidden, {whole, 2 * width, head, head, 2 * head}));
  }
  return parts;
}

}  // namespace moed
