// What families have in common in config.json, read into a ModelSpec.
#pragma once

#include <optional>
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
  bool attention_bias = false;
  std::optional<double> partial_rotary;  // partial_rotary_factor may be below 1; this where it is absent
  bool ntk_alpha = false;                // "dynamic" scaling with a fixed alpha, which changes theta
  bool mrope = false;                    // as ConfigReader::RopeKinds
  bool layer_types = false;
  bool rotations = false;  // rope_parameters by type of layer
  bool quantization = false;
  bool latent = false;  // multi-head latent attention
};

// The keys that all families share: sizes of attention and embeddings, norms, rope, and refusals of what no family implements.
ModelSpec ReadDecoder(ConfigReader& config, const OwnKeys& own = {});
// layer_types and sliding_window into spec.windows; where there are no layer_types they are `otherwise`.
void ReadWindows(ConfigReader& config, ModelSpec& spec, std::vector<std::string> otherwise);
// ReadRotations of the layers of spec.windows and of the others; what is absent turns by these thetas. After ReadWindows.
void ReadLayerRotations(ConfigReader& config, ModelSpec& spec, double full_theta, double sliding_theta);
// mlp_only_layers and decoder_sparse_step into spec.moe; dense_ffn from intermediate_size where a layer has no experts.
void ReadSparsity(ConfigReader& config, ModelSpec& spec);
// first_k_dense_replace into spec.moe; dense_ffn from intermediate_size where a layer has no experts.
void ReadLeadingDense(ConfigReader& config, ModelSpec& spec);
// mlp_layer_types into spec.moe, `otherwise` where there are none; dense_ffn as above.
void ReadMlpTypes(ConfigReader& config, ModelSpec& spec, std::vector<std::string> otherwise);
// What mlp_layer_types says of a model whose first `leading` layers have no experts.
std::vector<std::string> LeadingDenseTypes(const ModelSpec& spec, int leading);
// n_routed_experts, their size, and n_shared_experts of the same size as one: the names of DeepSeek and GLM.
void ReadRoutedExperts(ConfigReader& config, ModelSpec& spec);
// DeepSeek-V3's router: sigmoid scores with a correction for the choice, among the groups with the two best scores. `scale` where
// routed_scaling_factor is absent.
void ReadCorrectedRouter(ConfigReader& config, ModelSpec& spec, double scale, bool groups_are_required = false);
// BOS and EOS of both files, then everything checked.
absl::StatusOr<ModelSpec> FinishSpec(ConfigReader config, std::string_view generation_config, ModelSpec spec);

}  // namespace moed
