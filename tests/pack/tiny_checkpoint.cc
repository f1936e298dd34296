#include "tests/pack/tiny_checkpoint.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "core/base/check.h"
#include "core/model/expert_shapes.h"
#include "core/model/family.h"
#include "core/quant/half.h"
#include "tests/paths.h"

namespace moed {
namespace {

using nlohmann::json;

void AppendNumber(const std::string& dtype, float value, std::string& out) {
  const auto append = [&out](auto bits) { out.append(reinterpret_cast<const char*>(&bits), sizeof bits); };
  if (dtype == "F32") return append(value);
  append(dtype == "F16" ? FloatToFloat16(value) : FloatToBFloat16(value));
}

}  // namespace

std::string FileContents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteContents(const std::string& path, std::string_view contents) {
  std::ofstream file(path, std::ios::binary);
  file.write(contents.data(), static_cast<std::streamsize>(contents.size()));
  file.close();
  MOED_CHECK(file.good());
}

TestTensor RandomTensor(const std::string& dtype, std::vector<uint64_t> shape, uint64_t seed) {
  TestTensor tensor{dtype, std::move(shape), ""};
  uint64_t count = 1;
  for (const uint64_t extent : tensor.shape) count *= extent;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.05f);
  for (uint64_t i = 0; i < count; ++i) AppendNumber(dtype, normal(random), tensor.bytes);
  return tensor;
}

std::string Safetensors(const TestTensors& tensors) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data;
}

void TinyCheckpoint::Write(const std::string& folder) const {
  std::filesystem::create_directories(folder);
  WriteContents(folder + "/config.json", config.dump());
  if (!generation_config.is_null()) WriteContents(folder + "/generation_config.json", generation_config.dump());
  WriteContents(folder + "/tokenizer.json", tokenizer);
  WriteContents(folder + "/model.safetensors", Safetensors(tensors));
}

json TinyCheckpoint::WriteSharded(const std::string& folder, int shards) const {
  Write(folder);
  std::filesystem::remove(folder + "/model.safetensors");
  std::vector<TestTensors> parts(shards);
  json weight_map;
  int i = 0;
  for (const auto& [name, tensor] : tensors) {
    const int shard = i++ % shards;
    parts[shard][name] = tensor;
    weight_map[name] = "shard-" + std::to_string(shard) + ".safetensors";
  }
  for (int shard = 0; shard < shards; ++shard) {
    WriteContents(folder + "/shard-" + std::to_string(shard) + ".safetensors", Safetensors(parts[shard]));
  }
  const json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", weight_map}};
  WriteContents(folder + "/model.safetensors.index.json", index.dump());
  return index;
}

// Sizes of a Gated DeltaNet; one layer has attention.
json DeltaNetConfig(const json& more) {
  json config = {{"num_experts", 5},
                 {"moe_intermediate_size", 20},
                 {"shared_expert_intermediate_size", 28},
                 {"full_attention_interval", 2},
                 {"linear_num_key_heads", 2},
                 {"linear_num_value_heads", 4},
                 {"linear_key_head_dim", 6},
                 {"linear_value_head_dim", 5},
                 {"linear_conv_kernel_dim", 3}};
  config.update(more);
  return config;
}

json TinyConfig(std::string_view model_type) {
  if (model_type == "switch_transformers") {
    return {{"model_type", model_type},
            {"d_model", 40},
            {"d_kv", 8},
            {"d_ff", 36},
            {"num_heads", 5},
            {"num_layers", 2},
            {"num_decoder_layers", 3},
            {"num_sparse_encoder_layers", 1},
            {"num_sparse_decoder_layers", 1},
            {"num_experts", 5},
            {"vocab_size", 4100},
            {"decoder_start_token_id", 0},
            {"tie_word_embeddings", false},
            {"router_bias", true},
            {"eos_token_id", 0},
            {"torch_dtype", "bfloat16"}};
  }
  if (model_type == "gptsan-japanese") {
    return {{"model_type", model_type},
            {"d_model", 40},
            {"d_ff", 36},
            {"d_ext", 28},
            {"num_heads", 5},
            {"num_switch_layers", 2},
            {"num_ext_layers", 1},
            {"num_experts", 5},
            {"vocab_size", 4100},
            {"max_position_embeddings", 64},
            {"separator_token_id", 5},
            {"router_bias", true},
            {"eos_token_id", 0},
            {"torch_dtype", "bfloat16"}};
  }
  json config = {{"model_type", model_type}, {"hidden_size", 40},    {"num_hidden_layers", 3},        {"num_attention_heads", 5},
                 {"num_key_value_heads", 1}, {"vocab_size", 4100},   {"max_position_embeddings", 64}, {"rms_norm_eps", 1e-5},
                 {"rope_theta", 10000.0},    {"hidden_act", "silu"}, {"tie_word_embeddings", false},  {"num_experts_per_tok", 2},
                 {"intermediate_size", 36},  {"eos_token_id", 0},    {"torch_dtype", "bfloat16"}};
  const json latent = {{"num_key_value_heads", 5}, {"n_routed_experts", 5},
                       {"n_shared_experts", 2},    {"first_k_dense_replace", 1},
                       {"q_lora_rank", 12},        {"moe_intermediate_size", 20},
                       {"kv_lora_rank", 16},       {"qk_nope_head_dim", 10},
                       {"qk_rope_head_dim", 6},    {"v_head_dim", 8}};
  json grouped_latent = latent;
  grouped_latent.update({{"n_group", 1}, {"topk_group", 1}});
  json scaled_latent = grouped_latent;
  scaled_latent.update(
      {{"head_dim", 16},
       {"rope_scaling",
        {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}, {"llama_4_scaling_beta", 0.1}}}});
  const json kimi = {
      {"num_key_value_heads", 5},
      {"num_experts", 5},
      {"num_shared_experts", 2},
      {"first_k_dense_replace", 1},
      {"q_lora_rank", 12},
      {"moe_intermediate_size", 20},
      {"kv_lora_rank", 16},
      {"qk_nope_head_dim", 10},
      {"qk_rope_head_dim", 6},
      {"v_head_dim", 8},
      {"routed_scaling_factor", 2.5},
      {"linear_attn_config",
       {{"num_heads", 4}, {"head_dim", 6}, {"short_conv_kernel_size", 3}, {"kda_layers", {1, 3}}, {"full_attn_layers", {2}}}}};
  const std::map<std::string_view, json> rows = {
      {"mixtral", {{"num_local_experts", 5}}},
      {"qwen2_moe",
       {{"num_experts", 5},
        {"moe_intermediate_size", 20},
        {"shared_expert_intermediate_size", 28},
        {"norm_topk_prob", false},
        {"decoder_sparse_step", 1},
        {"mlp_only_layers", {1}}}},
      {"qwen3_moe", {{"num_experts", 5}, {"moe_intermediate_size", 20}, {"head_dim", 16}, {"norm_topk_prob", true}}},
      {"olmoe", {{"num_experts", 5}, {"norm_topk_prob", false}}},
      {"glm4_moe",
       {{"n_routed_experts", 5},
        {"n_shared_experts", 2},
        {"first_k_dense_replace", 1},
        {"moe_intermediate_size", 20},
        {"partial_rotary_factor", 0.5}}},
      {"ernie4_5_moe", {{"moe_num_experts", 5}, {"moe_k", 2}, {"moe_num_shared_experts", 1}, {"moe_intermediate_size", 20}}},
      {"ernie4_5_moe_vl",
       {{"moe_num_experts", {5, 5}},
        {"moe_k", 2},
        {"moe_num_shared_experts", 1},
        {"moe_intermediate_size", {20, 12}},
        {"moe_layer_start_index", 1},
        {"moe_layer_end_index", -1}}},
      {"ernie4_5_vl_moe_text",
       {{"moe_num_experts", 5}, {"moe_k", 2}, {"moe_num_shared_experts", 1}, {"moe_intermediate_size", {20, 12}}}},
      {"minimax_m2", {{"num_local_experts", 5}, {"rotary_dim", 4}}},
      {"hunyuan_v1_moe", {{"num_experts", 5}, {"moe_topk", 2}}},
      {"deepseek",
       {{"n_routed_experts", 5}, {"n_shared_experts", 2}, {"first_k_dense_replace", 1}, {"moe_intermediate_size", 20}}},
      {"deepseek_v2", latent},
      {"deepseek_v3", grouped_latent},
      {"kimi_k2", grouped_latent},
      {"glm4_moe_lite", latent},
      {"kimi_linear", kimi},
      {"hy_v3",
       {{"num_experts", 5},
        {"num_shared_experts", 1},
        {"moe_intermediate_size", 20},
        {"head_dim", 16},
        {"first_k_dense_replace", 1},
        {"router_scaling_factor", 2.5}}},
      {"minicpm", {{"num_experts", 5}, {"scale_emb", 12}, {"scale_depth", 1.4}, {"dim_model_base", 20}}},
      {"granitemoe", {{"num_local_experts", 5}, {"residual_multiplier", 0.5}}},
      {"phimoe", {{"num_local_experts", 5}, {"attention_bias", true}, {"lm_head_bias", true}}},
      {"qwen3_next", DeltaNetConfig({{"mlp_only_layers", {1}}})},
      {"qwen3_5_moe_text", DeltaNetConfig({{"mtp_num_hidden_layers", 1}})},
      {"lfm2_moe",
       {{"num_experts", 5},
        {"moe_intermediate_size", 20},
        {"num_dense_layers", 1},
        {"layer_types", {"conv", "full_attention", "conv"}},
        {"conv_L_cache", 3},
        {"norm_eps", 1e-5}}},
      {"granitemoehybrid",
       {{"num_local_experts", 5},
        {"shared_intermediate_size", 28},
        {"layer_types", {"mamba", "attention", "mamba"}},
        {"position_embedding_type", "nope"},
        {"mamba_n_heads", 4},
        {"mamba_n_groups", 2},
        {"mamba_d_state", 6},
        {"mamba_d_conv", 3},
        {"residual_multiplier", 0.5}}},
      {"nemotron_h",
       {{"hybrid_override_pattern", "M*E"},
        {"n_routed_experts", 5},
        {"moe_intermediate_size", 20},
        {"moe_shared_expert_intermediate_size", 28},
        {"mamba_num_heads", 4},
        {"mamba_head_dim", 10},
        {"n_groups", 2},
        {"ssm_state_size", 6},
        {"conv_kernel", 3},
        {"mlp_hidden_act", "relu2"},
        {"layer_norm_epsilon", 1e-5}}},
      {"mellum",
       {{"num_experts", 5},
        {"moe_intermediate_size", 20},
        {"head_dim", 16},
        {"sliding_window", 6},
        {"layer_types", {"full_attention", "sliding_attention", "sliding_attention"}},
        {"mlp_layer_types", {"sparse", "dense", "sparse"}},
        {"rope_theta", nullptr}}},  // rope_parameters of types of layers
      {"gemma4_text",
       {{"top_k_experts", 2},
        {"num_experts", 5},
        {"moe_intermediate_size", 20},
        {"head_dim", 8},
        {"global_head_dim", 16},
        {"num_global_key_value_heads", 5},
        {"attention_k_eq_v", true},
        {"enable_moe_block", true},
        {"hidden_size_per_layer_input", 0},
        {"sliding_window", 6},
        {"layer_types", {"sliding_attention", "sliding_attention", "full_attention"}},
        {"tie_word_embeddings", true},
        {"hidden_act", nullptr},    // hidden_activation
        {"rope_theta", nullptr}}},  // rope_parameters of types of layers
      {"laguna",
       {{"num_experts", 5},
        {"moe_intermediate_size", 20},
        {"shared_expert_intermediate_size", 28},
        {"head_dim", 16},
        {"sliding_window", 6},
        {"layer_types", {"full_attention", "sliding_attention", "sliding_attention"}},
        {"num_attention_heads_per_layer", {5, 3, 3}},
        {"mlp_layer_types", {"sparse", "dense", "sparse"}},
        {"rope_theta", nullptr}}},  // rope_parameters of types of layers
      {"bailing_moe",
       {{"num_experts", 5}, {"num_shared_experts", 2}, {"first_k_dense_replace", 1}, {"moe_intermediate_size", 20}}},
      {"bailing_moe_v2",
       {{"num_experts", 5},
        {"num_shared_experts", 2},
        {"first_k_dense_replace", 1},
        {"moe_intermediate_size", 20},
        {"n_group", 1},
        {"topk_group", 1},
        {"partial_rotary_factor", 0.5}}},
      {"smallthinker",
       {{"moe_num_active_primary_experts", 2},
        {"moe_num_primary_experts", 5},
        {"moe_ffn_hidden_size", 20},
        {"rope_layout", {0, 1, 1}},
        {"sliding_window_layout", {0, 1, 1}},
        {"sliding_window_size", 6},
        {"hidden_act", "relu"}}},
      {"gpt_oss",
       {{"num_local_experts", 5},
        {"head_dim", 8},
        {"sliding_window", 6},
        {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}}}}},
      {"afmoe",
       {{"num_experts", 5},
        {"moe_intermediate_size", 20},
        {"head_dim", 8},
        {"sliding_window", 6},
        {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}}},
      {"dots1", {{"n_routed_experts", 5}, {"n_shared_experts", 1}, {"moe_intermediate_size", 20}, {"sliding_window", nullptr}}},
      {"solar_open", {{"n_routed_experts", 5}, {"n_shared_experts", 1}, {"moe_intermediate_size", 20}, {"head_dim", 8}}},
      {"sarvam_moe", {{"num_experts", 5}, {"moe_intermediate_size", 20}, {"head_dim", 8}}},
      {"exaone_moe",
       {{"num_experts", 5},
        {"moe_intermediate_size", 20},
        {"sliding_window", 6},
        {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}}},
      {"qwen3_vl_moe_text", {{"num_experts", 5}, {"moe_intermediate_size", 20}, {"head_dim", 16}}},
      {"qwen3_omni_moe_text", {{"num_experts", 5}, {"moe_intermediate_size", 20}, {"head_dim", 16}}},
      {"glm4v_moe_text",
       {{"n_routed_experts", 5}, {"n_shared_experts", 2}, {"moe_intermediate_size", 20}, {"partial_rotary_factor", 0.5}}},
      {"flex_olmo", {{"num_experts", 5}, {"norm_topk_prob", false}}},
      {"granitemoeshared", {{"num_local_experts", 5}, {"shared_intermediate_size", 28}, {"residual_multiplier", 0.5}}},
      {"llama4_text",
       {{"num_local_experts", 5},
        {"num_experts_per_tok", 1},
        {"intermediate_size_mlp", 28},
        {"interleave_moe_layer_step", 2},
        {"head_dim", 8},
        {"attention_chunk_size", 8},
        {"no_rope_layers", {1, 0, 1}}}},
      {"mistral4", scaled_latent},
      {"cohere2_moe",
       {{"num_experts", 5},
        {"num_shared_experts", 2},
        {"expert_selection_fn", "sigmoid"},
        {"norm_topk_prob", true},
        {"head_dim", 8},
        {"sliding_window", 6},
        {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}},
        {"layer_norm_eps", 1e-5},
        {"tie_word_embeddings", true}}},
  };
  const auto row = rows.find(model_type);
  MOED_CHECK(row != rows.end());
  config.update(row->second);
  for (const char* other : {"norm_eps", "layer_norm_epsilon", "layer_norm_eps"}) {
    if (config.contains(other)) config.erase("rms_norm_eps");
  }
  if (config.contains("mlp_hidden_act")) config.erase("hidden_act");
  if (config.contains("moe_ffn_hidden_size")) config.erase("intermediate_size");
  for (const char* other : {"moe_k", "moe_topk", "top_k_experts", "moe_num_active_primary_experts"}) {
    if (config.contains(other)) config.erase("num_experts_per_tok");
  }
  return config;
}

TinyCheckpoint FillTinyCheckpoint(const json& config, const std::string& dtype) {
  const auto family = FamilyOf(config.dump());
  MOED_CHECK(family.ok());
  const auto spec = (*family)->read_spec(config.dump(), "");
  MOED_CHECK(spec.ok());
  TinyCheckpoint checkpoint{config, nullptr, FileContents(DemoCheckpoint() + "/tokenizer.json"), {}};
  uint64_t seed = 0;
  for (const TrunkTensor& tensor : (*family)->trunk_tensors(*spec)) {
    checkpoint.tensors[tensor.checkpoint_name] = RandomTensor(dtype, tensor.checkpoint_shape(), ++seed);
  }
  const PartShapes shapes = ExpertShapes(*spec);
  for (const LayerId layer : spec->MoeLayers()) {
    for (int expert = 0; expert < spec->experts; ++expert) {
      for (const ExpertPart part : PartsOf(shapes)) {
        const auto [rows, cols] = shapes[static_cast<size_t>(part)];
        checkpoint.tensors[(*family)->expert_tensor(layer, expert, part)] =
            RandomTensor(dtype, {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)}, ++seed);
      }
    }
  }
  return checkpoint;
}

TinyCheckpoint MakeTinyCheckpoint(std::string_view model_type) { return FillTinyCheckpoint(TinyConfig(model_type)); }

std::string DemoCheckpoint() { return SourcePath("models/tales-qwen"); }

}  // namespace moed
