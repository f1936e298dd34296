// Hunyuan-A13B: one shared expert as wide as intermediate_size says, RMS norm over each head of q and k after they are rotated.
#include "core/base/status.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"

namespace moed {
namespace {

// Of Tencent's own code: that of FP8 and GPTQ releases, and of other models, which have other architectures.
constexpr std::string_view kFamily = "hunyuan_v1_moe", kOwnType = "hunyuan";

// What A13B's config.json has of models that see, and of attention and routers that it says it has not.
void KnowOtherModels(ConfigReader& config) {
  config.Only("routed_scaling_factor", {false, 1});
  config.Only("use_rotary_pos_emb", {true});
  config.Known({"anyres_pooling_size",
                "anyres_vit_max_image_size",
                "anyres_vit_two_views",
                "image_token_id",
                "kv_lora_rank",
                "n_group",
                "num_media_embeds",
                "q_lora_rank",
                "qk_nope_head_dim",
                "qk_rope_head_dim",
                "topk_group",
                "v_head_dim",
                "video_end_id",
                "video_start_id",
                "vit_add_patchemb_bias",
                "vit_input_resolution",
                "vit_mapping_type",
                "vit_norm_type",
                "vit_patch",
                "vit_path",
                "vit_remove_prenorm",
                "vit_token",
                "vit_type",
                "vit_used_rms_norm",
                "xdrope_section"});
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  static constexpr std::string_view kArchitectures[] = {"HunYuanMoEV1ForCausalLM"};
  if (config.Is("model_type", kOwnType)) config.Strings("architectures", kArchitectures);
  ModelSpec spec = ReadDecoder(config, {.top_k = "moe_topk", .ntk_alpha = true});
  spec.family = kFamily;
  KnowOtherModels(config);
  config.Only("sliding_window", {});
  config.Only("use_qk_norm", {true});
  config.Only("use_cla", {false});
  config.Only("use_mla", {false});
  config.Only("use_mixed_mlp_moe", {true});
  config.Only("norm_type", {"rms"});
  config.Only("position_embedding_xdrope", {false});
  config.Only("moe_layer_num_skipped", {0});
  config.Only("group_limited_greedy", {false});
  config.Only("attention_head_dim", {spec.head_dim});
  config.Known({"add_classification_head",
                "auto_map",
                "capacity_factor",
                "cla_share_factor",
                "class_num",
                "dense_list",
                "eod_token_id",
                "enable_lm_head_fp32",
                "im_end_id",
                "im_newline_id",
                "im_start_id",
                "mask_init_id",
                "moe_drop_tokens",
                "moe_random_routing_dropped_token",
                "org_vocab_size",
                "pad_id",
                "pool_type",
                "skip_cls_token",
                "text_end_id",
                "text_start_id"});
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  spec.qk_norm_after_rope = true;
  spec.experts = config.SameInt("num_experts", 1, 1 << 14);
  spec.expert_ffn = spec.shared_ffn = config.Int("intermediate_size", 1, 1 << 20);
  if (config.Has("moe_intermediate_size") && config.SameInt("moe_intermediate_size", 1, 1 << 20) != spec.expert_ffn) {
    config.Fail(InvalidArgument("config.json: moe_intermediate_size is not intermediate_size = ", spec.expert_ffn));
  }
  if (config.Has("num_shared_expert")) config.SameInt("num_shared_expert", 1, 1);
  spec.norm_topk_prob = true;
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  return DecoderTensors(spec,
                        {.router = "gate.wg", .shared = "shared_mlp", .q_norm = "query_layernorm", .k_norm = "key_layernorm"});
}

}  // namespace

Family HunyuanV1MoeFamily() { return {kFamily, ReadSpec, MlpExpertTensor, TrunkTensors, nullptr, nullptr, kOwnType}; }

}  // namespace moed
