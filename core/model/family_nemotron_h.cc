// Nemotron-3-Nano: each layer is one block, Mamba-2, attention, or experts with a shared one. No feed-forward block has a gate,
// and heads do not turn.
//
// Step sizes have no least value. The published code and llama.cpp have none either; transformers raises them to time_step_min
// (0.001) in a text that it reads at once, and not when it generates.
#include <algorithm>

#include "absl/strings/str_replace.h"
#include "core/base/status.h"
#include "core/kernels/recurrence.h"
#include "core/model/decoder_config.h"
#include "core/model/decoder_tensors.h"
#include "core/model/families.h"
#include "core/model/matrix_parts.h"

namespace moed {
namespace {

using Json = nlohmann::json;

enum class Block : uint8_t { kMamba2, kAttention, kExperts, kDense };

// In hybrid_override_pattern, and in layers_block_type as transformers 5 writes it and as it was before.
struct BlockName {
  char letter;
  std::string_view name;
  Block block;
};
constexpr BlockName kBlocks[] = {{'M', "linear_attention", Block::kMamba2},
                                 {'*', "full_attention", Block::kAttention},
                                 {'E', "moe", Block::kExperts},
                                 {'-', "mlp", Block::kDense},
                                 {'M', "mamba", Block::kMamba2},
                                 {'*', "attention", Block::kAttention}};

std::vector<Block> ReadPattern(ConfigReader& config, const std::string& pattern) {
  std::vector<Block> blocks;
  if (pattern.empty() || pattern.find_first_not_of("M*E-") != pattern.npos) {
    config.Fail(InvalidArgument("config.json: hybrid_override_pattern = \"", pattern, "\", allowed: letters M, *, E and -"));
    return blocks;
  }
  for (const char letter : pattern) blocks.push_back(std::ranges::find(kBlocks, letter, &BlockName::letter)->block);
  return blocks;
}

std::vector<Block> ReadBlocks(ConfigReader& config) {
  const std::string_view key = config.Spelling("layers_block_type", "layer_types");
  std::vector<Block> blocks;
  if (!config.Has(key)) {
    const std::string pattern = config.String("hybrid_override_pattern");
    return config.status().ok() ? ReadPattern(config, pattern) : blocks;
  }
  std::vector<std::string_view> names;
  for (const BlockName& known : kBlocks) names.push_back(known.name);
  for (const std::string& name : config.Strings(key, names)) {
    blocks.push_back(std::ranges::find(kBlocks, name, &BlockName::name)->block);
  }
  return blocks;
}

void SetBlocks(ConfigReader& config, const std::vector<Block>& blocks, ModelSpec& spec) {
  spec.layers = static_cast<int>(blocks.size());
  spec.moe.clear();
  for (const Block block : blocks) {
    spec.recurrent.push_back(block == Block::kMamba2);
    spec.mixers.push_back(block == Block::kMamba2 || block == Block::kAttention);
    spec.moe.push_back(block == Block::kExperts);
  }
  config.Only("num_hidden_layers", {spec.layers});
  if (std::ranges::count(blocks, Block::kDense) > 0) spec.dense_ffn = config.Int("intermediate_size", 1, 1 << 20);
}

void ReadMamba2(ConfigReader& config, ModelSpec& spec) {
  spec.mamba2 = {.heads = config.Int("mamba_num_heads", 1, 1024),
                 .head_dim = config.Int("mamba_head_dim", 1, 1024),
                 .groups = config.Int("n_groups", 1, 1024),
                 .state_dim = config.Int("ssm_state_size", 1, 1024),
                 .taps = config.Int("conv_kernel", 2, kMostTaps),
                 .convolution_bias = config.BoolOr("use_conv_bias", true)};
  config.Only("mamba_hidden_act", {"silu"});
  config.Only("mamba_proj_bias", {false});
  config.Only("use_bias", {false});
  config.Only("time_step_limit", {Json::array({0.0, Json::object({{"__float__", "Infinity"}})})});
  config.Known({"expand", "chunk_size", "time_step_min", "time_step_max", "time_step_floor", "mamba_ssm_cache_dtype",
                "use_mamba_kernels"});
}

absl::StatusOr<ModelSpec> ReadSpec(std::string_view config_json, std::string_view generation_config) {
  MOED_ASSIGN_OR_RETURN(ConfigReader config, ConfigReader::Parse("config.json", config_json));
  ModelSpec spec = ReadDecoder(
      config, {.norm_eps = "layer_norm_epsilon", .rope_theta = 10000.0, .layers = true, .layer_types = true, .activation = true});
  SetBlocks(config, ReadBlocks(config), spec);
  ReadMamba2(config, spec);
  spec.unrotated = true;
  config.Only("sliding_window", {});
  config.Only("mlp_hidden_act", {"relu2"});
  spec.activation = Activation::kSquaredRelu;
  spec.experts = config.Int("n_routed_experts", 1, 1 << 14);
  spec.expert_ffn = config.Int("moe_intermediate_size", 1, 1 << 20);
  spec.shared_ffn = config.Int("moe_shared_expert_intermediate_size", 1, 1 << 20);
  config.Only("moe_latent_size", {});
  ReadCorrectedRouter(config, spec, 1.0);
  config.Known({"auto_map", "intermediate_size", "norm_eps", "n_shared_experts", "moe_shared_expert_overlap", "residual_in_fp32",
                "rescale_prenorm_residual", "num_logits_to_keep", "hidden_dropout", "num_nextn_predict_layers",
                "mtp_layers_block_type", "mtp_hybrid_override_pattern", "hybrid_override_pattern"});
  return FinishSpec(std::move(config), generation_config, std::move(spec));
}

// Every block of a layer is its "mixer".
std::string InCheckpoint(std::string_view name) {
  return absl::StrReplaceAll(ToAbsl(name), {{"model.embed_tokens.", "backbone.embeddings."},
                                            {"model.", "backbone."},
                                            {".self_attn.", ".mixer."},
                                            {".mamba.", ".mixer."},
                                            {".mlp.", ".mixer."}});
}

std::vector<TrunkTensor> TrunkTensors(const ModelSpec& spec) {
  std::vector<TrunkTensor> tensors =
      DecoderTensors(spec, {.shared = "shared_experts", .attention_norm = "norm", .ffn_norm = "norm", .final_norm = "norm_f"});
  for (TrunkTensor& tensor : tensors) tensor.checkpoint_name = InCheckpoint(tensor.checkpoint_name);
  return tensors;
}

std::string ExpertTensor(LayerId layer, int expert, ExpertPart part) {
  return InCheckpoint(MlpExpertTensor(layer, expert, part));
}

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (int layer = 0; layer < spec.layers; ++layer) {
    if (!spec.IsRecurrent(LayerId(layer))) continue;
    const std::string prefix = StrCat("backbone.layers.", layer, ".mixer.");
    AddMamba2Projections(*spec.mamba2, spec.hidden, prefix + "in_proj.", parts);
    parts.push_back(TapsOf(prefix + "conv1d.taps", prefix + "conv1d.weight", spec.mamba2->ConvolvedWidth(), spec.mamba2->taps));
  }
  return parts;
}

// Layers that predict further tokens.
bool Unused(const ModelSpec&, std::string_view name) { return name.starts_with("mtp."); }

}  // namespace

Family NemotronHFamily() { return {"nemotron_h", ReadSpec, ExpertTensor, TrunkTensors, Parts, Unused}; }

}  // namespace moed
