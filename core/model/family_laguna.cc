// Laguna (Poolside): layers with a window and those that see all have heads of queries, and rotations, of their own; attention is
// multiplied by the softplus of a gate for each head, or for each number. Sigmoid scores with a correction, a shared expert.
#include <algorithm>

#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"
#include "core/model/laguna_layers.h"

namespace moed {
namespace {

constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention";

// transformers' where rope_parameters is absent.
constexpr double kFullTheta = 500000, kFullPartial = 0.5, kSlidingTheta = 10000;

// Of the layers with a window, or of the others: all have as many heads.
int HeadsOfKind(ConfigReader& config, const ModelSpec& spec, const std::vector<int>& heads, bool slides) {
  int of_kind = spec.heads;
  bool found = false;
  for (int layer = 0; layer < spec.layers && !heads.empty(); ++layer) {
    if ((spec.WindowOf(LayerId(layer)) > 0) != slides) continue;
    if (found && heads[static_cast<size_t>(layer)] != of_kind) {
      config.Fail(InvalidArgument("config.json: num_attention_heads_per_layer has both ", of_kind, " and ",
                                  heads[static_cast<size_t>(layer)], " for layers of ", slides ? kSliding : kFull));
    }
    of_kind = heads[static_cast<size_t>(layer)];
    found = true;
  }
  return of_kind;
}

void ReadKindsOfLayers(ConfigReader& config, ModelSpec& spec) {
  const std::vector<int> heads = config.IntsOr("num_attention_heads_per_layer", 1, 1024);
  if (!heads.empty() && heads.size() != static_cast<size_t>(spec.layers)) {
    config.Fail(InvalidArgument("config.json: num_attention_heads_per_layer has ", heads.size(), " entries for ", spec.layers,
                                " layers"));
    return;
  }
  static constexpr std::string_view kTypes[] = {kFull, kSliding};
  const bool by_type = config.Has("rope_parameters");
  const std::vector<std::optional<Rotation>> read = config.ReadPartRotations(kTypes, spec.head_dim);
  const Rotation usual[] = {{.theta = kFullTheta, .rotary_dims = static_cast<int>(kFullPartial * spec.head_dim)},
                            {.theta = kSlidingTheta, .rotary_dims = spec.head_dim}};
  const auto kind = [&](bool slides) {
    const bool some = std::ranges::any_of(spec.windows, [&](int window) { return (window > 0) == slides; });
    if (by_type && !read[slides] && (some || (!slides && spec.windows.empty()))) {
      config.Fail(InvalidArgument("config.json: key rope_parameters.", kTypes[slides], " is missing"));
    }
    return LagunaLayers{HeadsOfKind(config, spec, heads, slides), read[slides].value_or(usual[slides])};
  };
  SetLagunaLayers(spec, kind(false), kind(true));
}

// What says once more which layers have experts, as other models do.
void CheckSparsity(ConfigReader& config, const ModelSpec& spec) {
  config.Only("decoder_sparse_step", {1});
  std::vector<bool> moe(static_cast<size_t>(spec.layers), true);
  for (const int layer : config.IntsOr("mlp_only_layers", 0, spec.layers - 1)) moe[static_cast<size_t>(layer)] = false;
  if (config.Has("mlp_only_layers") && moe != spec.moe) {
    config.Fail(InvalidArgument("config.json: mlp_only_layers contradicts mlp_layer_types"));
  }
}

bool ReadGatePerHead(ConfigReader& config, const ModelSpec& spec) {
  static constexpr std::string_view kPerHead[] = {"per-head", "per_head"}, kPerElement[] = {"per-element", "per_element"};
  config.Only("gating", {true, "per-head", "per-element"});
  const bool per_head = !config.Is("gating", "per-element");
  config.StringsOr("gating_types", static_cast<size_t>(spec.layers), per_head ? kPerHead : kPerElement, {});
  return per_head;
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(config, {.layer_types = true, .rotations = true, .heads = true});
  spec.kv_heads = config.Int("num_key_value_heads", 1, 1024);
  spec.head_dim = config.Int("head_dim", 2, 1024);
  ReadWindows(config, spec, std::vector<std::string>(spec.layers, std::string(kFull)));
  ReadKindsOfLayers(config, spec);
  SetLagunaTraits(spec, ReadGatePerHead(config, spec));
  ReadMlpTypes(config, spec, LeadingDenseTypes(spec, 1));
  CheckSparsity(config, spec);
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 20);
  spec.shared_ffn = config.Int("shared_expert_intermediate_size", 1, 1 << 20);
  spec.router_scale = config.NumberOr("moe_routed_scaling_factor", 1, 1e-3, 1e3);
  config.Only("moe_apply_router_weight_on_input", {false});
  config.Only("moe_router_logit_softcapping", {0});
  config.Only("moe_router_use_sigmoid", {true});
  config.Only("moe_router_score_func", {"sigmoid"});
  config.Only("norm_topk_prob", {true});
  config.Only("use_bidirectional_attention", {false});
  config.Only("use_qk_norm", {true});
  config.Only("qkv_bias", {false});
  config.Only("rope_scaling", {});
  if (config.Has("rope_theta")) config.Number("rope_theta", 1, 1e15);  // the objects of rope_parameters have their own
  config.Known({"auto_map", "rope_theta"});
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

constexpr OwnName kNames[] = {{"q", "self_attn.q_proj.weight"}, {"attention_gate", "self_attn.g_proj.weight"}};

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(spec, {.correction = "experts.e_score_correction_bias", .own = kNames});
}

}  // namespace

void SetLagunaLayers(ModelSpec& spec, const LagunaLayers& full, const LagunaLayers& sliding) {
  const auto slide = std::ranges::count_if(spec.windows, [](int window) { return window > 0; });
  const bool all_slide = slide > 0 && slide == spec.layers;
  const LagunaLayers& first = all_slide ? sliding : full;
  spec.heads = first.heads;
  spec.rope_theta = first.rotation.theta;
  spec.yarn = first.rotation.yarn;
  spec.rotary_dims = first.rotation.rotary_dims == spec.head_dim ? 0 : first.rotation.rotary_dims;
  if (slide == 0 || all_slide || (full.rotation == sliding.rotation && full.heads == sliding.heads)) return;
  spec.more_rotations = {sliding.rotation};
  if (sliding.rotation.rotary_dims == spec.RotaryDims()) spec.more_rotations[0].rotary_dims = 0;
  if (full.heads != sliding.heads) {
    spec.more_heads = {{.kv_heads = spec.kv_heads, .head_dim = spec.head_dim, .heads = sliding.heads}};
  }
  for (const int window : spec.windows) spec.rotations.push_back(window > 0 ? 1 : 0);
}

void SetLagunaTraits(ModelSpec& spec, bool gate_per_head) {
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.attention_gate = true;
  spec.gate_kind = gate_per_head ? ModelSpec::GateKind::kHeadSoftplus : ModelSpec::GateKind::kSoftplus;
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = true;
  spec.norm_topk_prob = true;
}

Family LagunaFamily() { return {"laguna", ReadSpec, MlpExpertTensor, TrunkTensors}; }

}  // namespace moed
