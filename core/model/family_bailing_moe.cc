// Ling and Ring (inclusionAI's BailingMoE): leading dense layers, shared experts without a gate, queries, keys and values as rows
// of one matrix. The first version has probabilities by softmax. The second has sigmoid scores with a correction among the best
// groups, norms of queries and keys, and turns a part of each head; most of its files call themselves "bailing_moe" as well.
#include "core/base/status.h"
#include "core/model/bailing_checkpoint.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

constexpr std::string_view kFirst = "bailing_moe", kSecond = "bailing_moe_v2";
constexpr int kMostShared = 64;
constexpr int kUsualGroups = 8, kUsualKept = 4;  // where the keys are absent

bool IsSecondVersion(ConfigReader& config) {
  return config.String("model_type") == kSecond || config.Is("architectures", {"BailingMoeV2ForCausalLM"}) ||
         config.Is("score_function", "sigmoid");
}

void RefuseOthers(ConfigReader& config) {
  config.Only("sliding_window", {});
  config.Only("use_bias", {false});
  config.Only("use_qkv_bias", {false});
  config.Only("norm_head", {false});
  config.Only("norm_softmax", {false});
  config.Only("use_rmsnorm", {true});
  config.Only("multi_gate", {false});
  config.Only("using_split_qkv_in_self_attention", {false});
  config.Known({"auto_map", "embedding_dropout", "output_dropout", "mtp_loss_scaling_factor", "num_nextn_predict_layers",
                "router_dtype", "seq_aux"});
}

// A share of the shared experts' width may be another one than that of an expert.
void ReadExperts(ConfigReader& config, ModelSpec& spec) {
  spec.experts = config.Int(config.Spelling("num_experts", "num_local_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 18);
  const int shared = config.IntOr("moe_shared_expert_intermediate_size", spec.expert_ffn, 1, 1 << 18);
  spec.shared_ffn = config.IntOr("num_shared_experts", 0, 0, kMostShared) * shared;
  ReadLeadingDense(config, spec);
}

ModelSpec ReadFirst(ConfigReader& config) {
  ModelSpec spec = ReadDecoder(config);
  config.Only("score_function", {"softmax"});
  config.Only("use_qk_norm", {false});
  config.Only("moe_router_enable_expert_bias", {false});
  config.Only("n_group", {1});
  config.Only("topk_group", {1});
  config.Only("routed_scaling_factor", {1});
  spec.norm_topk_prob = spec.top_k > 1 && config.BoolOr("norm_topk_prob", false);
  return spec;
}

ModelSpec ReadSecond(ConfigReader& config) {
  if (!config.Has("partial_rotary_factor") && !config.Has("rotary_dim")) {
    config.Fail(InvalidArgument("config.json: keys partial_rotary_factor and rotary_dim are both missing; one is needed"));
  }
  ModelSpec spec = ReadDecoder(config, {.partial_rotary = 1.0, .rotary_dims = "rotary_dim"});
  config.Only("score_function", {"sigmoid"});
  config.Only("scoring_func", {"sigmoid"});
  config.Only("topk_method", {"noaux_tc"});
  config.Only("moe_router_enable_expert_bias", {true});
  config.Only("norm_topk_prob", {true});
  if (config.BoolOr("use_qk_norm", true)) spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.router_scoring = RouterScoring::kSigmoid;
  spec.router_correction = true;
  SetRouterGroups(spec, config.IntOr("n_group", kUsualGroups, 1, kMostGroups),
                  config.IntOr("topk_group", kUsualKept, 1, kMostGroups));
  spec.norm_topk_prob = spec.top_k > 1;
  spec.router_scale = config.NumberOr("routed_scaling_factor", 1, 1e-3, 1e3);
  return spec;
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = IsSecondVersion(config) ? ReadSecond(config) : ReadFirst(config);
  RefuseOthers(config);
  ReadExperts(config, spec);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

constexpr OwnName kNames[] = {
    {"q", "attention.query_key_value.query"},       {"k", "attention.query_key_value.key"},
    {"v", "attention.query_key_value.value"},       {"o", "attention.dense.weight"},
    {"q_norm", "attention.query_layernorm.weight"}, {"k_norm", "attention.key_layernorm.weight"},
};

Family Bailing(std::string_view model_type) {
  return {model_type, ReadSpec, MlpExpertTensor, BailingTensors, BailingParts, IsBehindTheLastLayer};
}

}  // namespace

std::vector<TrunkTensor> BailingTensors(const ModelSpec& spec) {
  return DecoderTensors(
      spec, {.correction = "gate.expert_bias", .shared = "shared_experts", .embed = "word_embeddings", .own = kNames});
}

std::vector<TensorPart> BailingParts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (int layer = 0; layer < spec.layers; ++layer) {
    AddQueryKeyValue(spec, StrCat("model.layers.", layer, ".attention.query_key_value."), parts);
  }
  return parts;
}

Family BailingMoeFamily() { return Bailing(kFirst); }
Family BailingMoeV2Family() { return Bailing(kSecond); }

}  // namespace moed
