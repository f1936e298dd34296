// What families have in common in config.json, read into a ModelSpec.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/config_reader.h"
#include "core/model/spec.h"

namespace moed {

// Keys that a family reads itself; the others' values that no family implements are refused for it.
struct OwnKeys {
  std::string_view top_k = "num_experts_per_tok";
  std::string_view norm_eps = "rms_norm_eps";
  bool tied = false;  // embeddings and head, where tie_word_embeddings is absent
  bool attention_bias = false;
  std::optional<double> rope_theta;      // where no key says it
  std::optional<double> partial_rotary;  // partial_rotary_factor may be below 1; this where it is absent
  std::string_view rotary_dims = "";     // says the same in dimensions; empty: no key does
  bool ntk_alpha = false;                // "dynamic" scaling with a fixed alpha, which changes theta
  bool mrope = false;                    // as ConfigReader::RopeKinds
  bool long_rope_magnitudes = false;     // as ConfigReader::RopeKinds
  bool layers = false;                   // how many there are
  bool layer_types = false;
  bool use_sliding_window = false;  // layer_types say which layers slide, whatever it says
  bool rotations = false;           // rope_parameters by type of layer
  bool activation = false;
  bool heads = false;  // kv_heads and head_dim, of kinds of layers
  bool quantization = false;
  bool latent = false;           // multi-head latent attention
  bool latent_head_dim = false;  // head_dim, which means nothing there, may be that of plain heads
  // Of queries, in what YaRN says; heads' sizes are of all dimensions, also of those that do not rotate.
  bool temperature = false;
  std::string_view max_positions = "max_position_embeddings";
  std::string_view family = "";  // where model_type is absent; empty: it has to be there
};

// The keys that all families share: sizes of attention and embeddings, norms, rope, and refusals of what no family implements.
ModelSpec ReadDecoder(ConfigReader& config, const OwnKeys& own = {});
// Contexts of up to `original_positions` turn as `for_short` says, longer ones as `for_long`; spec.max_positions, at least as
// many, and rope_theta are known.
void SetLongRope(FrequencyDivisors for_short, FrequencyDivisors for_long, int original_positions, ModelSpec& spec);
// Whether each layer rotates.
void SetRotating(ModelSpec& spec, const std::vector<bool>& rotate);
// layer_types and sliding_window into spec.windows; where there are no layer_types they are `otherwise`.
void ReadWindows(ConfigReader& config, ModelSpec& spec, std::vector<std::string> otherwise);
// ReadRotations of the layers of spec.windows and of the others; what is absent turns by these thetas. After ReadWindows.
void ReadLayerRotations(ConfigReader& config, ModelSpec& spec, double full_theta, double sliding_theta);
// Of the layers that have a window in spec.windows, and of the others.
void SetLayerRotations(ModelSpec& spec, const Rotation& sliding, const Rotation& full);
// Heads turn in the layers that have a window in spec.windows alone.
void RotateWindowsAlone(ModelSpec& spec);
// A name in layer_types.
struct LayerKind {
  std::string_view name;
  bool recurrent = false;
};
// layer_types into spec.recurrent; `otherwise` where there are none, which is an error where that is empty.
void ReadRecurrentLayers(ConfigReader& config, ModelSpec& spec, std::span<const LayerKind> kinds,
                         std::vector<std::string> otherwise = {});
// mlp_only_layers and decoder_sparse_step into spec.moe; dense_ffn from intermediate_size where a layer has no experts.
void ReadSparsity(ConfigReader& config, ModelSpec& spec);
// The number of leading layers without experts into spec.moe; dense_ffn from intermediate_size where there is one.
void ReadLeadingDense(ConfigReader& config, ModelSpec& spec, std::string_view key = "first_k_dense_replace", int otherwise = 0);
// mlp_layer_types into spec.moe, `otherwise` where there are none; dense_ffn as above.
void ReadMlpTypes(ConfigReader& config, ModelSpec& spec, std::vector<std::string> otherwise);
// What mlp_layer_types says of a model whose first `leading` layers have no experts.
std::vector<std::string> LeadingDenseTypes(const ModelSpec& spec, int leading);
// mlp_layer_types, or first_k_dense_replace, which says the same of released files; one where neither is there. Into spec.moe.
void ReadDenseLayers(ConfigReader& config, ModelSpec& spec);
// n_routed_experts, their size, and n_shared_experts of the same size as one: the names of DeepSeek and GLM.
void ReadRoutedExperts(ConfigReader& config, ModelSpec& spec);
// As DeepSeek-V3 has them: a group ranks by its two best scores; the sum that norm_topk_prob divides by is never 0.
void SetRouterGroups(ModelSpec& spec, int groups, int kept);
// DeepSeek-V3's router: sigmoid scores with a correction for the choice, among the groups with the two best scores. `scale` where
// routed_scaling_factor is absent.
void ReadCorrectedRouter(ConfigReader& config, ModelSpec& spec, double scale, bool groups_are_required = false);
// BOS and EOS of both files, then everything checked.
absl::StatusOr<ModelSpec> FinishSpec(ConfigReader config, std::string_view generation_config, ModelSpec spec);

}  // namespace moed
