// AFMoE (Arcee's Trinity): gated attention with norms of each head, sigmoid scores with a correction, shared experts, leading
// dense layers. Norms stand before and behind attention and feed-forward blocks. Heads turn in the layers with a window alone.
#include <cmath>

#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

std::vector<std::string> EveryNthSeesAll(int layers, int n) {
  std::vector<std::string> types;
  for (int layer = 1; layer <= layers; ++layer) types.emplace_back(layer % n == 0 ? "full_attention" : "sliding_attention");
  return types;
}

void ReadExperts(ConfigReader& config, ModelSpec& spec) {
  spec.experts = config.Int("num_experts", 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 18);
  spec.shared_ffn = config.IntOr("num_shared_experts", 2, 0, kMostShared) * spec.expert_ffn;
  ReadLeadingDense(config, spec, "num_dense_layers", 1);
  config.Only("score_func", {"sigmoid"});
  config.Only("route_norm", {true});
  for (const char* groups : {"n_group", "topk_group", "num_expert_groups", "num_limited_groups"}) config.Only(groups, {1});
  spec.norm_topk_prob = true;
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = true;
  spec.router_epsilon = 1e-20;
  spec.router_scale = config.NumberOr("route_scale", 1, 1e-3, 1e3);
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  config.Int("head_dim", 2, 1024);  // absent, it would be 128
  ModelSpec spec = ReadDecoder(config, {.attention_bias = true, .layer_types = true});
  spec.qkv_bias = spec.o_bias = config.BoolOr("attention_bias", false);
  ReadWindows(config, spec, EveryNthSeesAll(spec.layers, config.IntOr("global_attn_every_n_layers", 4, 1, 4096)));
  RotateWindowsAlone(spec);
  config.Known({"auto_map", "load_balance_coeff", "use_grouped_mm"});
  spec.attention_gate = true;
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.norms = ModelSpec::Norms::kBoth;
  if (config.BoolOr("mup_enabled", false)) spec.embedding_scale = std::sqrt(spec.hidden);
  ReadExperts(config, spec);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

constexpr OwnName kNames[] = {
    {"q", "self_attn.q_proj.weight"},
    {"attention_gate", "self_attn.gate_proj.weight"},
    {"attn_post_norm", "post_attention_layernorm.weight"},
    {"ffn_post_norm", "post_mlp_layernorm.weight"},
};

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(spec, {.router = "router.gate",
                               .correction = "expert_bias",
                               .shared = "shared_experts",
                               .ffn_norm = "pre_mlp_layernorm",
                               .own = kNames});
}

}  // namespace

Family AfmoeFamily() { return {"afmoe", ReadSpec, MlpExpertTensor, TrunkTensors}; }

}  // namespace moed
