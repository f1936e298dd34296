// kimi-linear: Kimi Delta Attention where a layer has no heads of keys and values, latent attention elsewhere. Decays are written
// as they are used. llama.cpp always divides the weights of the chosen experts by their sum.
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/kernels/recurrence.h"
#include "core/model/decoder_tensors.h"
#include "core/model/matrix_parts.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

constexpr GgufName kNames[] = {
    {"q", "attn_q.weight"},
    {"q", "attn_q_b.weight"},
    {"q", "attn_qkv.q"},
    {"k", "attn_k.weight"},
    {"k", "attn_qkv.k"},
    {"v", "attn_v.weight"},
    {"v", "attn_qkv.v"},
    {"q_a", "attn_q_a.weight"},
    {"q_a_norm", "attn_q_a_norm.weight"},
    {"kv_a", "attn_kv_a_mqa.weight"},
    {"kv_a_norm", "attn_kv_a_norm.weight"},
    {"k_b", "attn_k_b.weight"},
    {"v_b", "attn_v_b.weight"},
    {"attention_gate", "ssm_g_b.weight"},
    {"delta.gate_in", "ssm_g_a.weight"},
    {"delta.a_in", "ssm_f_a.weight"},
    {"delta.a", "ssm_f_b.weight"},
    {"delta.b", "ssm_beta.weight"},
    {"delta.bias", "ssm_dt.bias"},
    {"delta.convolution", "ssm_conv1d_qkv.taps"},
    {"delta.decay_rate", "ssm_a.heads"},
    {"delta.norm", "ssm_norm.weight"},
};

// As one head of keys and values, or as many as there are of queries.
void ReadHeads(GgufSpecReader& reader, ModelSpec& spec) {
  constexpr std::string_view kKvHeads = "attention.head_count_kv";
  for (const int heads : reader.Ints(kKvHeads, static_cast<size_t>(spec.layers), 0, 1024)) {
    spec.recurrent.push_back(heads == 0);
    if (heads > 1 && heads != spec.heads) {
      reader.Fail(InvalidArgument(kKvHeads, " has ", heads, ", allowed: 0, 1 and ", spec.heads));
    }
  }
  spec.rotary_dims = reader.Int("rope.dimension_count", 2, 1024);
  spec.head_dim = reader.Int("attention.key_length_mla", 4, 1024);
  spec.kv_heads = 1;
  spec.unrotated = true;
  spec.latent = {.q_rank = reader.IntOr("attention.q_lora_rank", 0, 0, 1 << 17),
                 .kv_rank = reader.Int("attention.kv_lora_rank", 1, 1024),
                 .value_dim = reader.Int("attention.value_length_mla", 1, 1024)};
  reader.Only("attention.key_length", {static_cast<double>(spec.latent->kv_rank + spec.rotary_dims)});
  reader.IntOr("attention.value_length", 0, 0, INT32_MAX);  // config.json's head_dim, which nobody has use for
}

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "kimi_linear", {.gating = true, .weights_scale = true, .heads = true});
  ReadHeads(reader, spec);
  const int head_dim = reader.Int("kda.head_dim", 1, 1024);
  spec.delta_net = {.key_heads = spec.heads,
                    .value_heads = spec.heads,
                    .key_dim = head_dim,
                    .value_dim = head_dim,
                    .taps = reader.Int("ssm.conv_kernel", 2, kMostTaps),
                    .gate_rank = head_dim};
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_count", 0, kMostShared) * spec.expert_ffn;
  ReadGroupedSigmoid(reader, spec);
  reader.Only("expert_weights_norm", {1});
  spec.norm_topk_prob = true;
  return reader.Finish(std::move(spec));
}

void AddRecurrent(const ModelSpec& spec, const std::string& layer, std::vector<TensorPart>& parts) {
  const DeltaNetShape& shape = *spec.delta_net;
  const int keys = shape.KeyWidth(), all = shape.ConvolvedWidth();
  const std::string mixed = layer + "attn_qkv.", convolution = layer + "ssm_conv1d_qkv.";
  parts.push_back(PartOf(mixed + "q", keys, spec.hidden, {mixed + "weight", all}));
  parts.push_back(PartOf(mixed + "k", keys, spec.hidden, {mixed + "weight", all, keys}));
  parts.push_back(PartOf(mixed + "v", shape.ValueWidth(), spec.hidden, {mixed + "weight", all, 2 * keys}));
  parts.push_back(TapsOf(convolution + "taps", convolution + "weight", all, shape.taps, /*flat=*/true));
  for (const char* const name : {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight"}) {
    parts.back().stacked.push_back(layer + name);
  }
  parts.push_back({.name = layer + "ssm_a.heads",
                   .whole = layer + "ssm_a",
                   .whole_shape = ShapeOf({shape.value_heads, 1}),
                   .rows = 1,
                   .cols = shape.value_heads,
                   .row_stride = shape.value_heads});
}

// The projections of keys and values may be one tensor.
std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts = LatentParts(spec);  // of each layer the keys, then the values
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string layer = StrCat("blk.", i / 2, ".");
    parts[i].name = layer + (i % 2 == 0 ? "attn_k_b.weight" : "attn_v_b.weight");
    parts[i].whole = layer + "attn_kv_b.weight";
  }
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (spec.IsRecurrent(LayerId(layer))) AddRecurrent(spec, StrCat("blk.", layer, "."), parts);
  }
  return parts;
}

}  // namespace

GgufArchitecture KimiLinearArchitecture() {
  return {.name = "kimi-linear", .model_type = "kimi_linear", .read_spec = ReadSpec, .own_names = kNames, .parts = Parts};
}

}  // namespace moed
