// A model as plain data: everything the decoder needs to know beside the weights. Travels in the store as canonical JSON.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/kernels/router.h"

namespace moed {

// Frequencies that turn fewer than beta_slow times in original_positions are divided by `factor`, those that turn more than
// beta_fast times stay, those between are a mixture; sine and cosine are multiplied by attention_factor.
struct YarnScaling {
  double factor = 1;  // >= 1
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 1;
  int original_positions = 0;
  bool truncate = true;  // the borders of the mixture are whole dimensions
  bool operator==(const YarnScaling&) const = default;
};

// Each frequency is divided by a number of its own (LongRoPE, arXiv 2402.13753); sine and cosine are multiplied by
// attention_factor.
struct FrequencyDivisors {
  std::vector<double> divisors;  // [rotary dims / 2]
  double attention_factor = 1;
  bool operator==(const FrequencyDivisors&) const = default;
};

// The frequencies by which heads turn.
struct Rotation {
  double theta = 10000.0;
  std::optional<YarnScaling> yarn;
  int pairs = 0;  // that turn, the first; the frequencies of the others are 0. 0: all turn
  std::optional<FrequencyDivisors> divided;
  int rotary_dims = 0;  // of head_dim, the first, where they differ from the model's; of rotations 1, 2, ... alone
  double AttentionFactor() const { return yarn ? yarn->attention_factor : divided ? divided->attention_factor : 1; }
  bool operator==(const Rotation&) const = default;
};

// Of a layer's attention.
struct HeadShape {
  int kv_heads = 0;
  int head_dim = 0;
  bool values_are_keys = false;  // as the keys are before their norm and rotation: one projection makes both
  int heads = 0;                 // of queries, where they are others than the model's
  bool operator==(const HeadShape&) const = default;
};

// What the gate of a feed-forward block goes through before it is multiplied with up. ReLU and its square: what up itself goes
// through, and there is no gate. Gated ReLU is one of the gate.
enum class Activation : uint8_t { kSilu, kGelu, kSquaredRelu, kRelu, kGatedRelu };  // GELU in its tanh form

// As SwiGluClamp of core/kernels.
struct SwiGluLimits {
  double alpha = 1;
  double limit = 1;
  bool operator==(const SwiGluLimits&) const = default;
};

// What layers that have a state in place of keys and values have in common. Such a layer keeps of a sequence, in floats: the last
// taps - 1 inputs of its convolution (taps - 1, convolved_width), a multiple of 16 floats, then its heads' matrices.
struct Recurrence {
  int taps = 0;
  int convolved_width = 0;
  int heads = 0;   // 0: no matrices
  int decays = 0;  // of all heads, for a position
  int64_t matrix_floats = 0;
  int output_width = 0;  // of what is read from a state, and of its gate
  int64_t InputFloats() const { return (int64_t{taps - 1} * convolved_width + 15) / 16 * 16; }
  int64_t StateFloats() const { return InputFloats() + matrix_floats; }
};

// Gated DeltaNet. Value head h goes with key head h / (value_heads / key_heads); in turn, with h % key_heads. A matrix for each
// is (key_dim, value_dim). With a gate_rank it is Kimi Delta Attention (arXiv 2510.26692): each dimension of a value head's keys
// has a decay of its own, what decays and gates are made of goes through so many numbers, and gates are sigmoids.
struct DeltaNetShape {
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int key_dim = 0;      // of a head
  int value_dim = 0;
  int taps = 0;  // of the convolution over queries, keys and values
  bool key_heads_in_turn = false;
  int gate_rank = 0;  // 0: a value head has one decay, gates are SiLUs

  bool DecaysByChannel() const { return gate_rank > 0; }
  int Decays() const { return DecaysByChannel() ? value_heads * key_dim : value_heads; }
  int KeyWidth() const { return key_heads * key_dim; }
  int ValueWidth() const { return value_heads * value_dim; }
  int ConvolvedWidth() const { return 2 * KeyWidth() + ValueWidth(); }
  Recurrence recurrence() const {
    return {taps, ConvolvedWidth(), value_heads, Decays(), int64_t{key_dim} * ValueWidth(), ValueWidth()};
  }
  bool operator==(const DeltaNetShape&) const = default;
};

// Mamba-2 (arXiv 2405.21060). Head h goes with group h / (heads / groups), which has its key (the paper's B) and query (C); its
// value is X, its matrix (state_dim, head_dim).
struct Mamba2Shape {
  int heads = 0;
  int head_dim = 0;
  int groups = 0;  // divides heads
  int state_dim = 0;
  int taps = 0;  // of the convolution over values, keys and queries
  bool convolution_bias = false;

  int Width() const { return heads * head_dim; }
  int GroupsWidth() const { return groups * state_dim; }
  int ConvolvedWidth() const { return Width() + 2 * GroupsWidth(); }
  Recurrence recurrence() const { return {taps, ConvolvedWidth(), heads, heads, int64_t{state_dim} * Width(), Width()}; }
  bool operator==(const Mamba2Shape&) const = default;
};

// A gated convolution over all hidden numbers, whose state is its last inputs (LFM2).
struct ShortConvolution {
  int taps = 0;
  bool operator==(const ShortConvolution&) const = default;
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1). A position keeps one row for all heads: kv_rank
// normed numbers, from which keys and values of every head come, and one rotated key. A head is head_dim numbers, of which the
// last rotary_dims are rotated; kv_heads is 1.
struct LatentAttention {
  int q_rank = 0;  // of the queries' own compression; 0: none
  int kv_rank = 0;
  int value_dim = 0;  // of a head
  double norm_eps = 1e-6;
  bool operator==(const LatentAttention&) const = default;
};

// The encoder of an encoder-decoder (T5, arXiv 1910.10683): the model's first layers, which see all of a source at once. The
// others are the decoder's: after their attention to what the decoder has read, they attend to what the encoder made of the
// source. Heads know positions by what they add to scores (core/model/position_bias.h).
struct EncoderShape {
  int layers = 0;
  int position_buckets = 0;
  int most_distance = 0;    // further ones are as this one
  int expert_capacity = 0;  // tokens of a source that an expert of a layer takes, the first; the others pass the layer by
  int start = 0;            // the token that the decoder begins with
  int distances() const { return 2 * most_distance + 1; }
  bool operator==(const EncoderShape&) const = default;
};

// A prefix-LM of GPTSAN's kind. The tokens of a prompt before its first separator see each other, all others what stands before
// them and themselves. Blocks read the residual stream as it is; what they put out has a layer norm. Positions have embeddings,
// and further ones before the first layer without experts. Beside its experts a layer adds tanh(bypass x), and a token that no
// expert has room for counts as its output. Before the head comes silu(last_project x).
struct PrefixShape {
  int separator = 0;
  int expert_capacity = 0;  // tokens of a prompt that an expert of a layer takes, the first
  bool operator==(const PrefixShape&) const = default;
};

// Queries at position p are multiplied by 1 + scale * log(1 + floor((p + shift) / positions)) (Scalable-Softmax, arXiv
// 2501.19399).
struct QueryTemperature {
  double scale = 0;
  int positions = 1;
  int shift = 0;              // 0 or 1
  bool of_unrotated = false;  // layers that rotate have none
  double FactorOf(int position) const { return 1 + scale * std::log1p((position + shift) / positions); }
  bool operator==(const QueryTemperature&) const = default;
};

struct ModelSpec {
  std::string family;  // a row of Families(): model_type of config.json
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocabulary = 0;
  int max_positions = 0;
  float rms_eps = 0;
  double rope_theta = 10000.0;
  std::optional<YarnScaling> yarn;  // of the rotary frequencies
  std::optional<FrequencyDivisors> divided;
  // Rotations 1, 2, ... of models whose layers differ; rotation 0 is rope_theta, yarn and divided.
  std::vector<Rotation> more_rotations;
  // A context of more positions turns by rotation 1, in all layers; 0: rotations do not depend on the context.
  int short_context = 0;
  std::vector<int> rotations;  // [layers]: the rotation of each. Empty: 0 for all
  int rotated_pairs = 0;       // of rotation 0, as Rotation::pairs
  // Of the layers of rotations 1, 2, ..., where theirs differ from kv_heads, head_dim and values_are_keys. Empty: none does.
  std::vector<HeadShape> more_heads;
  bool values_are_keys = false;
  int rotary_dims = 0;            // of head_dim, the first (latent attention: the last); 0: all
  bool rope_interleaved = false;  // pairs are neighbours
  std::optional<LatentAttention> latent;
  std::optional<EncoderShape> encoder;
  std::optional<PrefixShape> prefix;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool attention_sinks = false;  // a learned logit a head that joins the softmax's denominator
  // [layers]: positions that a layer's attention sees, its own included; 0: all. Empty: all layers see all.
  std::vector<int> windows;
  // [layers]: those whose heads do not turn while others' do. Empty: none.
  std::vector<bool> unrotated_layers;
  bool windows_are_chunks = false;  // of what a window holds a layer sees the chunk its position is in, of as many positions
  std::optional<QueryTemperature> temperature;
  bool unrotated = false;       // heads do not turn: only recurrent layers know the order of positions. rotary_dims of
                                // latent attention are then as they were projected
  bool attention_gate = false;  // attention's output is multiplied by the sigmoid of a projection of its input
  // What else than the sigmoid it may be: the softplus, of a number of the projection for each number, or one for a whole head.
  enum class GateKind { kSigmoid, kSoftplus, kHeadSoftplus };
  GateKind gate_kind = GateKind::kSigmoid;
  // Of the recurrent layers, one of these.
  std::optional<DeltaNetShape> delta_net;
  std::optional<Mamba2Shape> mamba2;
  std::optional<ShortConvolution> short_convolution;
  std::vector<bool> recurrent;  // [layers], those without attention. Empty: none
  // [layers] of a model whose layers are one block each, with one norm: whether it is attention or a recurrence; otherwise it is
  // a feed-forward block. Empty: layers are both, one after the other.
  std::vector<bool> mixers;

  // Qwen3: RMS norm over head_dim; OLMoE: over all heads together; Llama 4: over head_dim without weights, of layers that rotate.
  enum class QkNorm { kNone, kPerHead, kWhole, kUnit };
  QkNorm qk_norm = QkNorm::kNone;
  bool qk_norm_after_rope = false;
  // Norms stand before what a block reads. Around: also behind what attention, the shared expert, the routed experts, and both
  // together put out; and the router and the shared expert have norms of their own before them. Behind: behind what attention,
  // and what the feed-forward block as a whole puts out, and there alone. Both: there as well.
  enum class Norms { kBefore, kAround, kBehind, kBoth };
  Norms norms = Norms::kBefore;
  bool parallel = false;       // feed-forward blocks read what their layer's attention reads
  bool value_norm = false;     // RMS norm over head_dim, without weights
  bool layer_scale = false;    // a layer's output, the residual stream with it, is multiplied by a number
  bool layer_norm = false;     // norms of the residual stream are layer norms with a bias, not RMS norms
  bool head_bias = false;      // added to the logits
  double embedding_scale = 1;  // of the embedded tokens
  double attention_scale = 0;  // of the scores; 0: 1 / sqrt(head_dim)
  double residual_scale = 1;   // of what a block adds to the residual stream
  double logits_scale = 1;
  double logits_cap = 0;  // logits = cap * tanh(logits / cap); 0: they stay

  int experts = 0;
  int top_k = 0;
  int expert_ffn = 0;           // rows of up, and of gate
  bool norm_topk_prob = false;  // the k probabilities are divided by their sum
  bool expert_bias = false;     // on gate, up and down of every expert
  Activation activation = Activation::kSilu;
  std::optional<SwiGluLimits> swiglu_limits;  // none: activation(gate) * up, or activation(up)
  int shared_ffn = 0;                         // 0: no shared expert
  double shared_scale = 1;                    // of its output
  bool shared_gate = false;                   // its output is multiplied by sigmoid(shared_gate . x)
  int dense_ffn = 0;                          // of layers without experts; 0 when there are none
  std::vector<bool> moe;                      // [layers]

  // What the router reads: what feed-forward blocks read, or what the layer reads, before attention and without a norm. Then a
  // layer's experts are known, and their reads begin, while its attention is computed.
  enum class RouterInput { kFfn, kLayer };
  RouterInput router_input = RouterInput::kFfn;
  // How the router chooses, see kernels/router.h.
  bool router_bias = false;  // added to the logits
  RouterScoring router_scoring = RouterScoring::kSoftmax;
  bool router_correction = false;  // added to the scores for the choice alone
  int router_groups = 1;
  int router_kept_groups = 1;
  GroupRank router_group_rank = GroupRank::kLargestKey;
  double router_epsilon = 0;  // added to the sum that norm_topk_prob divides by
  double router_jitter = 0;   // sparsemixer
  double router_scale = 1;    // of the experts' outputs
  double router_logits_scale = 1;
  bool weighs_inputs = false;  // the weight of a choice multiplies what its expert reads, not what it puts out
  bool expert_scales = false;  // each expert's output is multiplied by a number

  std::vector<TokenId> bos;  // 0 or 1
  std::vector<TokenId> eos;  // config.json's and generation_config.json's, ascending

  std::vector<LayerId> MoeLayers() const;
  int WindowOf(LayerId layer) const { return windows.empty() ? 0 : windows[layer.value()]; }
  bool IsRecurrent(LayerId layer) const { return !recurrent.empty() && recurrent[layer.value()]; }
  bool HasMixer(LayerId layer) const { return mixers.empty() || mixers[layer.value()]; }
  bool HasAttention(LayerId layer) const { return HasMixer(layer) && !IsRecurrent(layer); }
  // Tokens of a sequence's first chunk that an expert of the layer takes; none: any number.
  std::optional<int> ExpertCapacity(LayerId layer) const {
    if (prefix) return prefix->expert_capacity;
    return IsEncoder(layer) ? std::optional(encoder->expert_capacity) : std::nullopt;
  }
  int encoder_layers() const { return encoder ? encoder->layers : 0; }
  bool IsEncoder(LayerId layer) const { return layer.value() < encoder_layers(); }
  // Whether it has keys and values that last longer than a step.
  bool KeepsKeys(LayerId layer) const { return HasAttention(layer) && !IsEncoder(layer); }
  // The first layer without experts of a prefix-LM.
  bool BeginsExtraLayers(LayerId layer) const {
    return prefix && layer.value() > 0 && !moe[layer.value()] && moe[layer.value() - 1];
  }
  bool HasFfn(LayerId layer) const { return mixers.empty() || !mixers[layer.value()]; }
  // Whether feed-forward blocks, experts as well, have a gate beside up.
  bool gated() const { return activation != Activation::kSquaredRelu && activation != Activation::kRelu; }
  // Of the recurrent layers; all zero where there are none.
  Recurrence recurrence() const;
  // Of float32 that the layer keeps of each sequence beside keys and values; 0: none.
  uint64_t StateBytes(LayerId layer) const { return IsRecurrent(layer) ? recurrence().StateFloats() * sizeof(float) : 0; }
  double AttentionScale() const { return AttentionScale(head_dim); }
  double AttentionScale(int dim) const {
    return attention_scale == 0 ? 1 / std::sqrt(static_cast<double>(dim)) : attention_scale;
  }
  bool RoutesEarly() const { return router_input == RouterInput::kLayer; }
  bool NormsAround() const { return norms == Norms::kAround; }
  bool NormsBehind() const { return norms == Norms::kBehind; }
  // A rotation's attention factor multiplies what turns of queries and keys. Where a norm follows, where a part of each head
  // turns and queries have no norm, some layers do not turn or the context decides, the rotation itself does so: by this number.
  double RotationMagnitude(int index) const {
    const bool apart = RotatesParts(index) && (qk_norm == QkNorm::kNone || short_context > 0 || !unrotated_layers.empty());
    return !unrotated && (qk_norm_after_rope || apart) ? rotation(index).AttentionFactor() : 1;
  }
  // What it does to the product of a query and a key that are rotated whole.
  double ScoreFactor(int index) const {
    const double factor = unrotated || qk_norm_after_rope || RotatesParts(index) ? 1 : rotation(index).AttentionFactor();
    return factor * factor;
  }
  // The same where a part of each head is rotated: the norm of the queries multiplies that part by it.
  double QueryPartFactor(int index = 0) const {
    const bool norm_has_it = !unrotated && RotatesParts(index) && RotationMagnitude(index) == 1;
    const double factor = norm_has_it ? rotation(index).AttentionFactor() : 1;
    return factor * factor;
  }
  // Of heads that are whole in their cache; latent attention keeps what is rotated apart.
  bool RotatesParts(int index = 0) const { return !latent && RotaryDims(index) < HeadsOf(index).head_dim; }
  bool Rotates(LayerId layer) const { return !unrotated && (unrotated_layers.empty() || !unrotated_layers[layer.value()]); }
  int RotationOf(LayerId layer) const { return rotations.empty() ? 0 : rotations[layer.value()]; }
  int rotation_count() const { return 1 + static_cast<int>(more_rotations.size()); }
  Rotation rotation(int index) const {
    return index == 0 ? Rotation{rope_theta, yarn, rotated_pairs, divided} : more_rotations[index - 1];
  }
  // The positions of a context that nobody asked to be longer.
  int UsualContext() const { return short_context > 0 ? std::min(short_context, max_positions) : max_positions; }
  // Of the layers of a rotation, or of a layer.
  HeadShape HeadsOf(int rotation) const {
    return rotation == 0 || more_heads.empty() ? HeadShape{kv_heads, head_dim, values_are_keys} : more_heads[rotation - 1];
  }
  HeadShape HeadsOf(LayerId layer) const { return HeadsOf(RotationOf(layer)); }
  int QueryHeads(const HeadShape& shape) const { return shape.heads > 0 ? shape.heads : heads; }
  // The numbers of attention_gate's projection for heads of queries.
  int GateWidth(const HeadShape& shape) const {
    return QueryHeads(shape) * (gate_kind == GateKind::kHeadSoftplus ? 1 : shape.head_dim);
  }
  // Numbers of the widest layer's queries, or keys, of a position.
  int64_t LargestQueryWidth() const;
  int64_t LargestKeyWidth() const;
  int RotaryDims(int rotation = 0) const {
    const int own = rotation == 0 ? 0 : more_rotations[static_cast<size_t>(rotation) - 1].rotary_dims;
    if (own > 0) return own;
    return rotary_dims == 0 ? HeadsOf(rotation).head_dim : rotary_dims;
  }
  // The frequencies of all rotations stand one after the other; where those of one begin. Of rotation_count(): how many they are.
  int FirstFrequency(int rotation) const;
  // What attention puts out for a head.
  int ValueDim() const { return latent ? latent->value_dim : head_dim; }
};

std::string SpecToJson(const ModelSpec& spec);
// DATA_LOSS for anything that SpecToJson did not write; every number is range-checked (hostile stores).
absl::StatusOr<ModelSpec> SpecFromJson(std::string_view json);

}  // namespace moed
