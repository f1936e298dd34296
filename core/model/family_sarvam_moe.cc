// Sarvam-30B: norms of each head, sigmoid scores with a correction, a shared expert, leading dense layers. A checkpoint has
// queries, keys and values as one projection.
#include "core/base/status.h"
#include "core/model/bailing_checkpoint.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;
constexpr double kTheta = 8e6;  // transformers' where no key says it

void ReadExperts(ConfigReader& config, ModelSpec& spec) {
  spec.experts = config.Int(config.Spelling("num_experts", "n_routed_experts"), 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 18);
  spec.shared_ffn = config.IntOr(config.Spelling("num_shared_experts", "n_shared_experts"), 1, 0, kMostShared) * spec.expert_ffn;
  config.Only("num_local_experts", {spec.experts});
  config.Only("moe_shared_expert_intermediate_size", {spec.shared_ffn});
  config.Only("moe_router_enable_expert_bias", {true});
  config.Only("score_function", {"sigmoid"});
  ReadLeadingDense(config, spec, "first_k_dense_replace", 1);
  ReadCorrectedRouter(config, spec, 2.5);
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  config.Int("num_key_value_heads", 1, 1024);  // absent, it would be 4
  config.Int("head_dim", 2, 1024);             // absent, it would be 64
  ModelSpec spec = ReadDecoder(config, {.rope_theta = kTheta, .partial_rotary = 1.0});
  config.Only("sliding_window", {});
  config.Only("use_rmsnorm", {true});
  for (const char* off : {"use_bias", "use_qkv_bias", "norm_head", "norm_softmax", "using_split_qkv_in_self_attention"}) {
    config.Only(off, {false});
  }
  config.Known({"auto_map", "embedding_dropout", "output_dropout", "router_dtype", "num_nextn_predict_layers", "num_mtp_layers",
                "mtp_loss_scaling_factor"});
  if (config.BoolOr("use_qk_norm", true)) spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadExperts(config, spec);
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

}  // namespace

Family SarvamMoeFamily() { return {"sarvam_moe", ReadSpec, MlpExpertTensor, BailingTensors, BailingParts, IsBehindTheLastLayer}; }

}  // namespace moed
