// A model as plain data: everything the decoder needs to know beside the weights. Travels in the store as canonical JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"

namespace moed {

struct ModelSpec {
  std::string family;  // model_type of config.json: "mixtral", "qwen2_moe", "qwen3_moe", "olmoe"
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocabulary = 0;
  int max_positions = 0;
  float rms_eps = 0;
  double rope_theta = 10000.0;
  bool tied_embeddings = false;
  bool qkv_bias = false;

  enum class QkNorm { kNone, kPerHead, kWhole };  // Qwen3: RMS norm over head_dim; OLMoE: over all heads together
  QkNorm qk_norm = QkNorm::kNone;

  int experts = 0;
  int top_k = 0;
  int expert_ffn = 0;           // rows of gate and up
  bool norm_topk_prob = false;  // the k probabilities are divided by their sum
  int shared_ffn = 0;           // 0: no shared expert
  bool shared_gate = false;     // its output is multiplied by sigmoid(shared_gate . x)
  bool router_bias = false;     // added to the router's logits
  int dense_ffn = 0;            // of layers without experts; 0 when there are none
  std::vector<bool> moe;        // [layers]

  std::vector<TokenId> bos;  // 0 or 1
  std::vector<TokenId> eos;  // config.json's and generation_config.json's, ascending

  std::vector<LayerId> MoeLayers() const;
};

std::string SpecToJson(const ModelSpec& spec);
// DATA_LOSS for anything that SpecToJson did not write; every number is range-checked (hostile stores).
absl::StatusOr<ModelSpec> SpecFromJson(std::string_view json);

}  // namespace moed
