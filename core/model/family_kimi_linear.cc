// Kimi-Linear: three of four layers are Kimi Delta Attention (arXiv 2510.26692), the others multi-head latent attention whose
// heads do not turn. DeepSeek-V3's router under names of its own.
#include <algorithm>

#include "core/base/status.h"
#include "core/kernels/recurrence.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kLinear = "linear_attention", kFull = "full_attention";
constexpr LayerKind kKinds[] = {{kLinear, true}, {kFull, false}};

// Two lists of layers, which count from 1 and have each of them once.
std::vector<std::string> LayerTypes(ConfigReader& linear, int layers) {
  std::vector<std::string> types(layers);
  int named = 0;
  for (const auto& [key, type] : {std::pair("full_attn_layers", kFull), std::pair("kda_layers", kLinear)}) {
    for (const int layer : linear.IntsOr(key, 1, layers)) types[layer - 1] = type, ++named;
  }
  if (named != layers || std::ranges::count(types, "") > 0) {
    linear.Fail(
        InvalidArgument("linear_attn_config: full_attn_layers and kda_layers have to name each of ", layers, " layers once"));
  }
  return types;
}

// What its heads have: linear_attn_config, or keys of their own, which say the same where both are there.
absl::Status ReadDeltaNet(ConfigReader& config, ModelSpec& spec) {
  int heads = 0, head_dim = 0, taps = 0;
  if (config.Has("linear_attn_config")) {
    MOED_ASSIGN_OR_RETURN(ConfigReader linear, config.Object("linear_attn_config"));
    heads = linear.Int("num_heads", 1, 1024);
    head_dim = linear.Int("head_dim", 1, 1024);
    taps = linear.Int("short_conv_kernel_size", 2, kMostTaps);
    const std::vector<std::string> types = LayerTypes(linear, spec.layers);
    MOED_RETURN_IF_ERROR(linear.Finish());
    config.Only("linear_num_heads", {heads});
    config.Only("linear_head_dim", {head_dim});
    config.Only("linear_conv_kernel_dim", {taps});
    config.Only("layer_types", {Json(types)});
    for (const std::string& type : types) spec.recurrent.push_back(type == kLinear);
  } else {
    heads = config.Int("linear_num_heads", 1, 1024);
    head_dim = config.Int("linear_head_dim", 1, 1024);
    taps = config.Int("linear_conv_kernel_dim", 2, kMostTaps);
    ReadRecurrentLayers(config, spec, kKinds);
  }
  spec.delta_net = {
      .key_heads = heads, .value_heads = heads, .key_dim = head_dim, .value_dim = head_dim, .taps = taps, .gate_rank = head_dim};
  return absl::OkStatus();
}

void ReadExperts(ConfigReader& config, ModelSpec& spec) {
  constexpr int kMostShared = 64;
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 18);
  spec.shared_ffn = config.Int(config.Spelling("num_shared_experts", "n_shared_experts"), 0, kMostShared) * spec.expert_ffn;
  spec.norm_topk_prob = config.BoolOr(config.Spelling("moe_renormalize", "norm_topk_prob"), true);
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = true;
  SetRouterGroups(spec, config.IntOr(config.Spelling("num_expert_group", "n_group"), 1, 1, kMostGroups),
                  config.IntOr("topk_group", 1, 1, kMostGroups));
  spec.router_scale = config.Number("routed_scaling_factor", 1e-3, 1e3);
  if (spec.router_groups > 1) config.Only("use_grouped_topk", {true});
  config.Only("moe_router_activation_func", {"sigmoid"});
  config.Only("moe_layer_freq", {1});
  config.Known({"use_grouped_topk", "num_nextn_predict_layers", "num_mtp_layers", "auto_map"});
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.top_k = config.Spelling("num_experts_per_token", "num_experts_per_tok"),
                                        .rope_theta = 10000.0,
                                        .layer_types = true,
                                        .latent = true,
                                        .latent_head_dim = true,
                                        .max_positions = config.Spelling("model_max_length", "max_position_embeddings")});
  spec.unrotated = true;
  config.Only("mla_use_nope", {true});
  config.Only("sliding_window", {});
  if (spec.yarn) config.Fail(InvalidArgument("config.json: rope_scaling of heads that do not turn is not supported"));
  MOED_RETURN_IF_ERROR(config.status());
  MOED_RETURN_IF_ERROR(ReadDeltaNet(config, spec));
  ReadExperts(config, spec);
  ReadDenseLayers(config, spec);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(spec, {.block = kSparseBlock, .shared = "shared_experts"});
}

void AddRecurrentParts(const ModelSpec& spec, const std::string& attention, std::vector<TensorPart>& parts) {
  const DeltaNetShape& shape = *spec.delta_net;
  const std::string convolution = attention + "qkv_conv1d.";
  parts.push_back(TapsOf(convolution + "taps", convolution + "weight", shape.ConvolvedWidth(), shape.taps));
  for (const char* const name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) {
    parts.back().stacked.push_back(attention + name);
  }
  parts.push_back({.name = attention + "A_log.heads",
                   .whole = attention + "A_log",
                   .whole_shape = ShapeOf({1, 1, shape.value_heads, 1}),
                   .rows = 1,
                   .cols = shape.value_heads,
                   .row_stride = shape.value_heads});
}

// transformers calls the block of a dense layer as that of the others.
void AddDenseParts(const ModelSpec& spec, const std::string& layer, std::vector<TensorPart>& parts) {
  const auto add = [&](const char* name, int rows, int cols) {
    parts.push_back(PartOf(StrCat(layer, "mlp.", name), rows, cols, {StrCat(layer, kSparseBlock, ".", name), rows}));
  };
  add("gate_proj.weight", spec.dense_ffn, spec.hidden);
  add("up_proj.weight", spec.dense_ffn, spec.hidden);
  add("down_proj.weight", spec.hidden, spec.dense_ffn);
}

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts = LatentParts(spec);
  for (int layer = 0; layer < spec.layers; ++layer) {
    const std::string checkpoint = StrCat("model.layers.", layer, ".");
    if (spec.IsRecurrent(LayerId(layer))) AddRecurrentParts(spec, checkpoint + "self_attn.", parts);
    if (!spec.moe[layer]) AddDenseParts(spec, checkpoint, parts);
  }
  return parts;
}

}  // namespace

Family KimiLinearFamily() {
  return {"kimi_linear", ReadSpec, SparseBlockExpertTensor, TrunkTensors, Parts, IsBehindTheLastLayer};
}

}  // namespace moed
