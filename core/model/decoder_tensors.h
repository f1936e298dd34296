// Checkpoint names that the families have in common; they differ in the name of the block that holds the experts.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model/family.h"

namespace moed {

// The store's name and the checkpoint's, both without their layer: {"ffn_norm", "pre_feedforward_layernorm.weight"}.
using OwnName = std::pair<std::string_view, std::string_view>;

// What a family calls the tensors of model.layers.N.
struct DecoderNames {
  std::string_view block = "mlp";                                // `block`.experts
  std::string_view router = "gate";                              // `block`.`router`.weight
  std::string_view correction = "gate.e_score_correction_bias";  // `block`.`correction`
  bool correction_is_row = false;                                // TrunkTensor::one_row
  std::string_view shared = "shared_expert";                     // `block`.`shared`
  std::string_view q_norm = "q_norm";                            // self_attn.`q_norm`
  std::string_view k_norm = "k_norm";
  std::string_view attention_norm = "input_layernorm";
  std::string_view ffn_norm = "post_attention_layernorm";
  std::string_view embed = "embed_tokens";                                             // model.`embed`.weight
  std::string_view final_norm = "norm";                                                // model.`final_norm`
  std::string_view o = "o_proj";                                                       // self_attn.`o`
  std::string_view dense = "mlp";                                                      // the block of a layer without experts
  std::string_view projections[kExpertParts] = {"gate_proj", "up_proj", "down_proj"};  // of feed-forward blocks
  Spelling norms = Spelling::kPlain;                                                   // of all but those of recurrent layers
  bool no_norm_bias = false;                                                           // layer norms have weights alone
  std::span<const OwnName> own;  // in place of what these make; tensors of some traits have no name but these
};

// A tensor's shape of numbers that are known to be positive.
std::vector<uint64_t> ShapeOf(std::initializer_list<int64_t> extents);
// All trunk tensors of `spec`.
std::vector<TrunkTensor> DecoderTensors(const ModelSpec& spec, const DecoderNames& names);
// Latent attention's k_b and v_b, which checkpoints have as one kv_b_proj.
std::vector<TensorPart> LatentParts(const ModelSpec& spec);
// The experts of a layer as checkpoints have them in two tensors: `prefix`gate_up_proj (experts, 2 * expert_ffn, hidden), gate
// before up, and `prefix`down_proj (experts, hidden, expert_ffn). `name` is the family's.
using ExpertTensorNamer = std::string (*)(LayerId layer, int expert, ExpertPart part);
void AddFusedExperts(const ModelSpec& spec, LayerId layer, const std::string& prefix, ExpertTensorNamer name,
                     std::vector<TensorPart>& parts);
// The same with inputs before outputs: (experts, hidden, 2 * expert_ffn) and (experts, expert_ffn, hidden).
void AddTransposedExperts(const ModelSpec& spec, LayerId layer, const std::string& prefix, ExpertTensorNamer name,
                          std::vector<TensorPart>& parts);
// The fused experts of all layers, where they stand in "model.layers.3.mlp.experts.".
std::string MlpExpertsPrefix(LayerId layer);
std::vector<TensorPart> FusedMlpExperts(const ModelSpec& spec);
// model.layers.N with N past the last layer: they predict further tokens.
bool IsBehindTheLastLayer(const ModelSpec& spec, std::string_view checkpoint_name);
// "model.layers.3.mlp.experts.7.gate_proj.weight".
std::string ExpertTensorName(LayerId layer, std::string_view moe_block, int expert, std::string_view projection);
// Mixtral's block of experts and what it calls them: w1, w3, w2.
inline constexpr std::string_view kSparseBlock = "block_sparse_moe";
inline constexpr std::string_view kSparseProjections[kExpertParts] = {"w1", "w3", "w2"};
std::string SparseBlockExpertTensor(LayerId layer, int expert, ExpertPart part);
// The projections are named gate_proj, up_proj, down_proj, the block "mlp".
std::string MlpExpertTensor(LayerId layer, int expert, ExpertPart part);

}  // namespace moed
