// The resident trunk: one buffer, and views of its tensors by their role in a layer.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/kernels/backend.h"
#include "core/model/spec.h"
#include "core/store/description.h"

namespace moed {

class ReadBackend;
class StoredEmbedding;
class StoreReader;

// down(activation(gate x) * (up x)), or down(activation(up x))
struct FfnWeights {
  MatrixView gate;                   // (ffn, hidden); none where the model has no gates
  MatrixView up;                     // (ffn, hidden)
  MatrixView down;                   // (hidden, ffn)
  const float* up_bias = nullptr;    // (ffn)
  const float* down_bias = nullptr;  // (hidden)
};

// Rows of float32, an expert each.
struct ExpertBiases {
  const float* gate = nullptr;  // (experts, ffn)
  const float* up = nullptr;    // (experts, ffn)
  const float* down = nullptr;  // (experts, hidden)
};

// Of latent attention, which has q and o as well: q then takes what q_a puts out, if there is a q_a.
struct LatentWeights {
  MatrixView q_a;                    // (q_rank, hidden)
  const float* q_a_norm = nullptr;   // (q_rank)
  MatrixView kv_a;                   // (kv_rank + rotary_dims, hidden)
  const float* kv_a_norm = nullptr;  // (kv_rank)
  MatrixView k_b;                    // (heads * kv_rank, head_dim - rotary_dims): the keys' projection, transposed within a head
  MatrixView v_b;                    // (heads * value_dim, kv_rank)
};

// Recurrent layers have LayerWeights' k, v, attention_gate, o, convolution and, those whose states have matrices, q.
// What a Gated DeltaNet has beside them. q and k are (key_heads * key_dim, hidden), v and attention_gate (value_heads *
// value_dim, hidden); the convolution is over q, k and v. With a gate_rank a and attention_gate read what a_in and gate_in put
// out, and have as many columns.
struct DeltaNetWeights {
  MatrixView a_in;                    // (gate_rank, hidden)
  MatrixView a;                       // (shape.Decays(), hidden): of the decay
  MatrixView b;                       // (value_heads, hidden): of the rate
  MatrixView gate_in;                 // (gate_rank, hidden)
  const float* bias = nullptr;        // (shape.Decays()), of a
  const float* decay_rate = nullptr;  // (value_heads), negative
  const float* norm = nullptr;        // (value_dim)
};

// What a layer of Mamba-2 has beside them. q and k are (groups * state_dim, hidden), v and attention_gate (heads * head_dim,
// hidden); the convolution is over v, k and q.
struct Mamba2Weights {
  const float* convolution_bias = nullptr;
  MatrixView step;                    // (heads, hidden)
  const float* step_bias = nullptr;   // (heads)
  const float* decay_rate = nullptr;  // (heads), negative
  const float* skip = nullptr;        // (heads)
  const float* norm = nullptr;        // (heads * head_dim)
};

// Of a decoder's attention to what the encoder made of the source.
struct CrossWeights {
  const float* norm = nullptr;  // (hidden), of what q takes
  MatrixView q;                 // (heads * head_dim, hidden)
  MatrixView k;                 // (heads * head_dim, hidden), as v of what the encoder made
  MatrixView v;
  MatrixView o;  // (hidden, heads * head_dim)
};

// What a layer does not have is null.
struct LayerWeights {
  const float* attn_norm = nullptr;  // (hidden)
  const float* attn_norm_bias = nullptr;
  MatrixView q;  // (heads * head_dim, hidden)
  MatrixView k;  // (kv_heads * head_dim, hidden)
  MatrixView v;
  MatrixView o;               // (hidden, heads * spec.ValueDim())
  MatrixView attention_gate;  // (spec.GateWidth of its heads, hidden)
  LatentWeights latent;
  CrossWeights cross;
  const float* convolution = nullptr;  // (taps, spec.recurrence().convolved_width)
  DeltaNetWeights delta;
  Mamba2Weights mamba2;
  const float* q_bias = nullptr;
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  const float* o_bias = nullptr;  // (hidden)
  const float* sinks = nullptr;   // (heads)
  const float* q_norm = nullptr;  // (head_dim) or (heads * head_dim), as spec.qk_norm says
  const float* k_norm = nullptr;
  const float* ffn_norm = nullptr;  // (hidden); attn_norm where blocks are parallel
  const float* ffn_norm_bias = nullptr;
  // Of what branches read, (hidden), where ffn_norm is that of the routed experts alone.
  const float* router_norm = nullptr;
  const float* shared_norm = nullptr;
  // Of what they put out, (hidden).
  const float* attn_post_norm = nullptr;
  const float* attn_post_norm_bias = nullptr;
  const float* shared_post_norm = nullptr;
  const float* experts_post_norm = nullptr;
  const float* ffn_post_norm = nullptr;  // of both together
  const float* ffn_post_norm_bias = nullptr;
  float layer_scale = 1;                 // a number of the host
  const float* expert_scales = nullptr;  // (experts)
  MatrixView router;                     // (experts, hidden)
  const float* router_bias = nullptr;    // (experts)
  const float* router_correction = nullptr;
  ExpertBiases expert_bias;
  MatrixView shared_gate;  // (1, hidden)
  MatrixView bypass;       // (hidden, hidden), of a prefix-LM
  FfnWeights shared;
  FfnWeights dense;
};

RouterShape RouterOf(const ModelSpec& spec, const LayerWeights& weights);
FfnActivation ActivationOf(const ModelSpec& spec);

struct Weights {
  Weights();
  Weights(Weights&&) noexcept;
  ~Weights();

  Buffer buffer;
  uint64_t bytes = 0;
  MatrixView embed;                                   // (vocabulary, hidden)
  std::unique_ptr<StoredEmbedding> stored_embedding;  // in its place, unless it is null
  MatrixView head;                                    // the same as embed when tied
  const float* final_norm = nullptr;                  // (hidden)
  const float* final_norm_bias = nullptr;
  const float* encoder_norm = nullptr;  // (hidden), of what the encoder's last layer makes
  const float* head_bias = nullptr;     // (vocabulary)
  // Of a prefix-LM.
  MatrixView positions;                      // (max_positions, hidden)
  MatrixView extra_positions;                // the same; none where all layers have experts
  MatrixView last_project;                   // (hidden, hidden)
  const float* last_project_bias = nullptr;  // (hidden)
  const float* inv_freq = nullptr;           // of all rotations, see spec.FirstFrequency
  std::vector<LayerWeights> layers;
};

// Reads the trunk whole, through `reads` unless it is null, into the backend's memory; with `rows`, which reads those of the
// embedding from then on, all but its table. DATA_LOSS when a tensor is missing, unknown or of another shape than the spec asks
// for.
absl::StatusOr<Weights> LoadWeights(const StoreReader& store, const ModelSpec& spec, ComputeBackend& backend, ReadBackend* reads,
                                    ReadBackend* rows = nullptr);

// DATA_LOSS unless layers, number and shapes of the stored experts are the spec's, at every precision.
absl::Status CheckExperts(const StoreDescription& description, const ModelSpec& spec);

}  // namespace moed
