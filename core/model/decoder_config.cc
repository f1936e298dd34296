#include "core/model/decoder_config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/status.h"
#include "core/model/spec_check.h"

namespace moed {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kLayerTypes[] = {kSliding, "full_attention"};
constexpr std::string_view kDense = "dense", kSparse = "sparse";  // mlp_layer_types

void ReadRotaryDims(ConfigReader& config, const OwnKeys& own, std::optional<double> partial, ModelSpec& spec) {
  const auto dims_of = [&](double part) { return static_cast<int>(spec.head_dim * part); };
  int dims = dims_of(partial.value_or(own.partial_rotary.value_or(1)));
  if (!own.rotary_dims.empty()) {
    const int given = config.IntOr(own.rotary_dims, dims, 2, spec.head_dim);
    if (partial && given != dims) {
      config.Fail(InvalidArgument("config.json: ", own.rotary_dims, " = ", given,
                                  " contradicts partial_rotary_factor = ", *partial, " of head_dim = ", spec.head_dim));
    }
    dims = given;
  }
  if (dims < spec.head_dim) spec.rotary_dims = dims;
}

void ReadOneRotation(ConfigReader& config, const OwnKeys& own, ModelSpec& spec) {
  const ConfigReader::Rope rope = config.ReadRope({.long_rope = true,
                                                   .long_rope_magnitudes = own.long_rope_magnitudes,
                                                   .scaled = !spec.latent,
                                                   .partial = own.partial_rotary.has_value(),
                                                   .ntk_alpha = own.ntk_alpha,
                                                   .theta = own.rope_theta,
                                                   .mrope = own.mrope,
                                                   .temperature = own.temperature});
  spec.rope_theta = rope.theta;
  if (own.temperature && !rope.temperature) {
    config.Fail(InvalidArgument("config.json: rope_parameters have no llama_4_scaling_beta, or are not of type \"yarn\""));
  }
  if (rope.temperature.value_or(0) != 0) {
    spec.temperature = {.scale = *rope.temperature, .positions = rope.yarn->original_positions};
  }
  if (rope.ntk_alpha > 1 && spec.head_dim > 2) {
    spec.rope_theta *= std::pow(rope.ntk_alpha, spec.head_dim / (spec.head_dim - 2.0));
  }
  spec.yarn = rope.yarn;
  if (rope.long_rope) {
    SetLongRope(rope.long_rope->for_short, rope.long_rope->for_long, rope.long_rope->original_positions, spec);
  }
  if (spec.latent && rope.all_dims_magnitude != 1) {
    spec.attention_scale = rope.all_dims_magnitude * rope.all_dims_magnitude * spec.AttentionScale();
  }
  ReadRotaryDims(config, own, rope.partial, spec);
  if (rope.scaled) spec.divided = rope.scaled->Divisors(spec.rope_theta, spec.RotaryDims());
}

void ReadHeads(ConfigReader& config, ModelSpec& spec) {
  spec.kv_heads = config.IntOr("num_key_value_heads", spec.heads, 1, 1024);
  if (!config.Has("head_dim") && spec.hidden % spec.heads != 0) {
    config.Fail(InvalidArgument("config.json: hidden_size = ", spec.hidden,
                                " is no multiple of num_attention_heads = ", spec.heads, " and there is no head_dim"));
  }
  spec.head_dim = config.IntOr("head_dim", spec.hidden / spec.heads, 2, 1024);
}

void ReadLatentHeads(ConfigReader& config, const OwnKeys& own, ModelSpec& spec) {
  spec.rotary_dims = config.Int("qk_rope_head_dim", 2, 1024);
  spec.head_dim = config.Int("qk_nope_head_dim", 1, 1024) + spec.rotary_dims;
  spec.kv_heads = 1;
  spec.latent = {.q_rank = config.IntOr("q_lora_rank", 0, 1, 1 << 17),
                 .kv_rank = config.Int("kv_lora_rank", 1, 1024),
                 .value_dim = config.Int("v_head_dim", 1, 1024)};
  config.Only("num_key_value_heads", {spec.heads});
  const int head_dim = own.temperature ? spec.head_dim : spec.rotary_dims;
  config.Only("head_dim", {head_dim, own.latent_head_dim ? spec.hidden / spec.heads : head_dim});
  config.Only("qk_head_dim", {spec.head_dim});
}

// Of the layers without experts.
void ReadDenseFfn(ConfigReader& config, ModelSpec& spec) {
  const int dense_ffn = config.Int("intermediate_size", 1, 1 << 20);
  if (std::count(spec.moe.begin(), spec.moe.end(), false) > 0) spec.dense_ffn = dense_ffn;
}

}  // namespace

ModelSpec ReadDecoder(ConfigReader& config, const OwnKeys& own) {
  ModelSpec spec;
  spec.family = own.family.empty() || config.Has("model_type") ? config.String("model_type") : std::string(own.family);
  config.Known({"model_type"});
  if (!own.layers) spec.layers = config.Int("num_hidden_layers", 1, 4096);
  spec.hidden = config.Int("hidden_size", 1, 1 << 17);
  spec.heads = config.Int("num_attention_heads", 1, 1024);
  if (!own.heads) own.latent ? ReadLatentHeads(config, own, spec) : ReadHeads(config, spec);
  spec.vocabulary = config.Int("vocab_size", 1, 1 << 24);
  spec.max_positions = config.Int(own.max_positions, 1, 1 << 24);
  spec.rms_eps = static_cast<float>(config.Number(own.norm_eps, 1e-12, 0.5));
  if (!own.rotations) ReadOneRotation(config, own, spec);
  spec.tied_embeddings = config.BoolOr("tie_word_embeddings", own.tied);
  spec.top_k = config.SameInt(own.top_k, 1, 1024);
  spec.moe.assign(spec.layers, true);

  if (!own.activation) config.Only("hidden_act", {"silu"});
  if (!own.attention_bias) config.Only("attention_bias", {false});
  config.Only("mlp_bias", {false});
  config.Only("clip_qkv", {});
  if (!own.quantization) config.Only("quantization_config", {});
  if (own.use_sliding_window) {
    config.Only("use_sliding_window", {true, false});
  } else {
    config.Only("use_sliding_window", {false});
  }
  config.Only("is_encoder_decoder", {false});
  config.Only("is_decoder", {false});
  config.Only("add_cross_attention", {false});
  config.Only("cross_attention_hidden_size", {});
  config.Only("tie_encoder_decoder", {false});
  config.Only("pruned_heads", {Json::object()});
  if (!own.layer_types) config.Only("layer_types", {Json(std::vector<std::string>(spec.layers, "full_attention"))});
  return spec;
}

void SetLongRope(FrequencyDivisors for_short, FrequencyDivisors for_long, int original_positions, ModelSpec& spec) {
  spec.divided = std::move(for_short);
  if (original_positions == spec.max_positions) return;  // no context is longer
  spec.short_context = original_positions;
  spec.more_rotations = {{.theta = spec.rope_theta, .divided = std::move(for_long)}};
}

void SetRotating(ModelSpec& spec, const std::vector<bool>& rotate) {
  const auto turning = std::ranges::count(rotate, true);
  spec.unrotated = turning == 0;
  if (turning == 0 || turning == spec.layers) return;
  for (const bool rotates : rotate) spec.unrotated_layers.push_back(!rotates);
}

void ReadWindows(ConfigReader& config, ModelSpec& spec, std::vector<std::string> otherwise) {
  const std::vector<std::string> types = config.StringsOr("layer_types", spec.layers, kLayerTypes, std::move(otherwise));
  const int window = config.IntOr("sliding_window", 0, 0, INT32_MAX);
  if (std::find(types.begin(), types.end(), kSliding) == types.end()) return;
  if (window == 0) {
    config.Fail(InvalidArgument("config.json: key sliding_window is missing or 0; layer_types name layers that slide"));
  }
  for (const std::string& type : types) spec.windows.push_back(type == kSliding ? window : 0);
}

void ReadLayerRotations(ConfigReader& config, ModelSpec& spec, double full_theta, double sliding_theta) {
  const std::vector<std::optional<Rotation>> read = config.ReadRotations(kLayerTypes);
  SetLayerRotations(spec, read[0].value_or(Rotation{sliding_theta}), read[1].value_or(Rotation{full_theta}));
}

void SetLayerRotations(ModelSpec& spec, const Rotation& sliding, const Rotation& full) {
  const auto slide = std::count_if(spec.windows.begin(), spec.windows.end(), [](int window) { return window > 0; });
  const Rotation& first = slide == spec.layers ? sliding : full;
  spec.rope_theta = first.theta;
  spec.yarn = first.yarn;
  if (slide == 0 || slide == spec.layers || sliding == full) return;
  spec.more_rotations = {sliding};
  for (const int window : spec.windows) spec.rotations.push_back(window > 0 ? 1 : 0);
}

void RotateWindowsAlone(ModelSpec& spec) {
  std::vector<bool> rotate;
  for (int layer = 0; layer < spec.layers; ++layer) rotate.push_back(spec.WindowOf(LayerId(layer)) > 0);
  SetRotating(spec, rotate);
}

void ReadRecurrentLayers(ConfigReader& config, ModelSpec& spec, std::span<const LayerKind> kinds,
                         std::vector<std::string> otherwise) {
  std::vector<std::string_view> names;
  for (const LayerKind& kind : kinds) names.push_back(kind.name);
  if (otherwise.empty() && !config.Has("layer_types")) config.Fail(InvalidArgument("config.json: key layer_types is missing"));
  for (const std::string& type : config.StringsOr("layer_types", spec.layers, names, std::move(otherwise))) {
    const auto kind = std::find(names.begin(), names.end(), type);
    spec.recurrent.push_back(kinds[kind - names.begin()].recurrent);
  }
}

void ReadSparsity(ConfigReader& config, ModelSpec& spec) {
  const int step = config.IntOr("decoder_sparse_step", 1, 1, 4096);
  for (int layer = 0; layer < spec.layers; ++layer) spec.moe[layer] = (layer + 1) % step == 0;
  for (int layer : config.IntsOr("mlp_only_layers", 0, spec.layers - 1)) spec.moe[layer] = false;
  ReadDenseFfn(config, spec);
}

void ReadLeadingDense(ConfigReader& config, ModelSpec& spec, std::string_view key, int otherwise) {
  const int dense = config.IntOr(key, otherwise, 0, spec.layers);
  std::fill_n(spec.moe.begin(), dense, false);
  ReadDenseFfn(config, spec);
}

std::vector<std::string> LeadingDenseTypes(const ModelSpec& spec, int leading) {
  std::vector<std::string> types;
  for (int layer = 0; layer < spec.layers; ++layer) types.emplace_back(layer < leading ? kDense : kSparse);
  return types;
}

void ReadMlpTypes(ConfigReader& config, ModelSpec& spec, std::vector<std::string> otherwise) {
  static constexpr std::string_view kTypes[] = {kDense, kSparse};
  const std::vector<std::string> types = config.StringsOr("mlp_layer_types", spec.layers, kTypes, std::move(otherwise));
  for (int layer = 0; layer < spec.layers; ++layer) spec.moe[layer] = types[layer] == kSparse;
  ReadDenseFfn(config, spec);
}

void ReadDenseLayers(ConfigReader& config, ModelSpec& spec) {
  const bool leading_given = config.Has("first_k_dense_replace");
  const int leading = config.IntOr("first_k_dense_replace", 1, 0, spec.layers);
  ReadMlpTypes(config, spec, LeadingDenseTypes(spec, leading));
  std::vector<bool> leading_dense(spec.layers, true);
  std::fill_n(leading_dense.begin(), leading, false);
  if (leading_given && spec.moe != leading_dense) {
    config.Fail(InvalidArgument("config.json: mlp_layer_types contradicts first_k_dense_replace = ", leading));
  }
}

void ReadRoutedExperts(ConfigReader& config, ModelSpec& spec) {
  constexpr int kMostShared = 64;
  spec.experts = config.Int("n_routed_experts", 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 18);
  spec.shared_ffn = config.Int("n_shared_experts", 0, kMostShared) * spec.expert_ffn;
}

void SetRouterGroups(ModelSpec& spec, int groups, int kept) {
  spec.router_groups = groups;
  spec.router_kept_groups = kept;
  spec.router_group_rank = groups > 1 ? GroupRank::kTwoLargestKeys : GroupRank::kLargestKey;
  spec.router_epsilon = 1e-20;
}

void ReadCorrectedRouter(ConfigReader& config, ModelSpec& spec, double scale, bool groups_are_required) {
  const auto groups = [&](std::string_view key) {
    return groups_are_required ? config.Int(key, 1, kMostGroups) : config.IntOr(key, 1, 1, kMostGroups);
  };
  spec.norm_topk_prob = config.BoolOr("norm_topk_prob", true);
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = true;
  SetRouterGroups(spec, groups("n_group"), groups("topk_group"));
  spec.router_scale = config.NumberOr("routed_scaling_factor", scale, 1e-3, 1e3);
}

absl::StatusOr<ModelSpec> FinishSpec(ConfigReader config, std::string_view generation_config, ModelSpec spec) {
  std::vector<int> bos = config.IntsOr("bos_token_id", 0, spec.vocabulary - 1);
  std::vector<int> eos = config.IntsOr("eos_token_id", 0, spec.vocabulary - 1);
  MOED_RETURN_IF_ERROR(config.Finish());
  if (!generation_config.empty()) {
    MOED_ASSIGN_OR_RETURN(ConfigReader generation, ConfigReader::Parse("generation_config.json", generation_config));
    const std::vector<int> more = generation.IntsOr("eos_token_id", 0, spec.vocabulary - 1);
    eos.insert(eos.end(), more.begin(), more.end());
    if (bos.empty()) bos = generation.IntsOr("bos_token_id", 0, spec.vocabulary - 1);
    MOED_RETURN_IF_ERROR(generation.status());  // its other keys steer sampling, which requests decide
  }
  std::sort(eos.begin(), eos.end());
  eos.erase(std::unique(eos.begin(), eos.end()), eos.end());
  spec.bos = std::vector<TokenId>(bos.begin(), bos.end());
  spec.eos = std::vector<TokenId>(eos.begin(), eos.end());
  if (const absl::Status checked = CheckSpec(spec); !checked.ok()) return InvalidArgument("config.json: ", checked.message());
  return spec;
}

}  // namespace moed
