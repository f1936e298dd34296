#include "core/model/decoder_tensors.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "core/base/status.h"

namespace moed {
namespace {

class TensorList {
 public:
  void Matrix(std::string store_name, std::string checkpoint_name, int rows, int cols) {
    tensors_.push_back({std::move(store_name), std::move(checkpoint_name), TensorRole::kMatrix, rows, cols});
  }
  void Router(std::string store_name, std::string checkpoint_name, int rows, int cols) {
    tensors_.push_back({std::move(store_name), std::move(checkpoint_name), TensorRole::kRouter, rows, cols});
  }
  void Vector(std::string store_name, std::string checkpoint_name, int cols, bool one_row = false) {
    tensors_.push_back({std::move(store_name), std::move(checkpoint_name), TensorRole::kVector, 1, cols, one_row});
  }
  void Spelled(std::string store_name, std::string checkpoint_name, int cols, Spelling spelling, bool one_row = false) {
    Vector(std::move(store_name), std::move(checkpoint_name), cols, one_row);
    tensors_.back().spelling = spelling;
  }
  // Of the last one.
  void ScaleParts(const HeadFactor& factor) { tensors_.back().head_factor = factor; }
  void Norm(const std::string& store_name, const std::string& checkpoint_name, const ModelSpec& spec, const DecoderNames& names) {
    Spelled(store_name, checkpoint_name + ".weight", spec.hidden, names.norms);
    if (!spec.layer_norm) return;
    Vector(store_name + "_bias", checkpoint_name + (names.no_norm_bias ? ".weight" : ".bias"), spec.hidden);
    if (names.no_norm_bias) ScaleParts({.head_dim = spec.hidden, .dims = spec.hidden, .factor = 0});  // zeros
  }
  void Rows(std::string store_name, std::string checkpoint_name, int rows, int cols) {
    tensors_.push_back({std::move(store_name), std::move(checkpoint_name), TensorRole::kVector, rows, cols});
  }
  void Ffn(const std::string& store_prefix, const std::string& checkpoint_prefix, const DecoderNames& names,
           const ModelSpec& spec, int ffn) {
    const auto checkpoint = [&](ExpertPart part) {
      return StrCat(checkpoint_prefix, names.projections[static_cast<size_t>(part)], ".weight");
    };
    if (spec.gated()) Matrix(store_prefix + "gate", checkpoint(ExpertPart::kGate), ffn, spec.hidden);
    Matrix(store_prefix + "up", checkpoint(ExpertPart::kUp), ffn, spec.hidden);
    Matrix(store_prefix + "down", checkpoint(ExpertPart::kDown), spec.hidden, ffn);
  }
  void Rename(const std::string& store_prefix, const std::string& checkpoint_prefix, std::span<const OwnName> names) {
    for (const auto& [store_name, checkpoint_name] : names) {
      const std::string store = StrCat(store_prefix, store_name);
      const auto named = std::ranges::find(tensors_, store, &TrunkTensor::store_name);
      if (named != tensors_.end()) named->checkpoint_name = StrCat(checkpoint_prefix, checkpoint_name);
    }
  }
  std::vector<TrunkTensor> Take() { return std::move(tensors_); }

 private:
  std::vector<TrunkTensor> tensors_;
};

std::string KeysOfLatent(const std::string& checkpoint) { return checkpoint + "self_attn.k_b_proj.weight"; }
std::string ValuesOfLatent(const std::string& checkpoint) { return checkpoint + "self_attn.v_b_proj.weight"; }

void AddLatentAttention(TensorList& list, const ModelSpec& spec, const LatentAttention& latent, const std::string& store,
                        const std::string& checkpoint) {
  const int q_width = spec.heads * spec.head_dim;
  if (latent.q_rank > 0) {
    list.Matrix(store + "q_a", checkpoint + "self_attn.q_a_proj.weight", latent.q_rank, spec.hidden);
    list.Vector(store + "q_a_norm", checkpoint + "self_attn.q_a_layernorm.weight", latent.q_rank);
    list.Matrix(store + "q", checkpoint + "self_attn.q_b_proj.weight", q_width, latent.q_rank);
  } else {
    list.Matrix(store + "q", checkpoint + "self_attn.q_proj.weight", q_width, spec.hidden);
  }
  list.Matrix(store + "kv_a", checkpoint + "self_attn.kv_a_proj_with_mqa.weight", latent.kv_rank + spec.rotary_dims, spec.hidden);
  list.Vector(store + "kv_a_norm", checkpoint + "self_attn.kv_a_layernorm.weight", latent.kv_rank);
  list.Matrix(store + "k_b", KeysOfLatent(checkpoint), spec.heads * latent.kv_rank, spec.head_dim - spec.rotary_dims);
  list.Matrix(store + "v_b", ValuesOfLatent(checkpoint), spec.heads * latent.value_dim, latent.kv_rank);
}

void AddProjections(TensorList& list, const ModelSpec& spec, const HeadShape& heads, const std::string& store,
                    const std::string& checkpoint) {
  const int q_width = spec.QueryHeads(heads) * heads.head_dim;
  const int kv_width = heads.kv_heads * heads.head_dim;
  list.Matrix(store + "q", StrCat(checkpoint, "self_attn.q_proj.", spec.attention_gate ? "query" : "weight"), q_width,
              spec.hidden);
  if (spec.attention_gate) {
    list.Matrix(store + "attention_gate", checkpoint + "self_attn.q_proj.gate", spec.GateWidth(heads), spec.hidden);
  }
  list.Matrix(store + "k", checkpoint + "self_attn.k_proj.weight", kv_width, spec.hidden);
  if (!heads.values_are_keys) list.Matrix(store + "v", checkpoint + "self_attn.v_proj.weight", kv_width, spec.hidden);
}

void AddAttention(TensorList& list, const ModelSpec& spec, int rotation, const DecoderNames& names, const std::string& store,
                  const std::string& checkpoint) {
  const HeadShape heads = spec.HeadsOf(rotation);
  const int query_heads = spec.QueryHeads(heads), q_width = query_heads * heads.head_dim;
  const int kv_width = heads.kv_heads * heads.head_dim;
  if (spec.latent) {
    AddLatentAttention(list, spec, *spec.latent, store, checkpoint);
  } else {
    AddProjections(list, spec, heads, store, checkpoint);
  }
  const int value_dim = spec.latent ? spec.latent->value_dim : heads.head_dim;
  list.Matrix(store + "o", StrCat(checkpoint, "self_attn.", names.o, ".weight"), spec.hidden, query_heads * value_dim);
  if (spec.qkv_bias) {
    list.Vector(store + "q_bias", checkpoint + "self_attn.q_proj.bias", q_width);
    list.Vector(store + "k_bias", checkpoint + "self_attn.k_proj.bias", kv_width);
    list.Vector(store + "v_bias", checkpoint + "self_attn.v_proj.bias", kv_width);
  }
  if (spec.o_bias) list.Vector(store + "o_bias", StrCat(checkpoint, "self_attn.", names.o, ".bias"), spec.hidden);
  if (spec.attention_sinks) list.Vector(store + "sinks", checkpoint + "self_attn.sinks", query_heads);
  if (spec.qk_norm != ModelSpec::QkNorm::kNone && spec.qk_norm != ModelSpec::QkNorm::kUnit) {
    const bool per_head = spec.qk_norm == ModelSpec::QkNorm::kPerHead;
    list.Spelled(store + "q_norm", StrCat(checkpoint, "self_attn.", names.q_norm, ".weight"), per_head ? heads.head_dim : q_width,
                 names.norms);
    if (const double factor = spec.QueryPartFactor(rotation); factor != 1) {
      list.ScaleParts({.head_dim = heads.head_dim, .dims = spec.RotaryDims(rotation), .factor = factor});
    }
    list.Spelled(store + "k_norm", StrCat(checkpoint, "self_attn.", names.k_norm, ".weight"),
                 per_head ? heads.head_dim : kv_width, names.norms);
  }
}

// Norms and scales that have names of their family's own alone.
void AddOwnVectors(TensorList& list, const ModelSpec& spec, const std::string& store) {
  const auto add = [&](bool has, const char* name, int cols) {
    if (has) list.Vector(store + name, "", cols);
  };
  const bool behind = spec.norms != ModelSpec::Norms::kBefore, around = spec.NormsAround(), shared = spec.shared_ffn > 0;
  add(around, "router_norm", spec.hidden);
  add(around && shared, "shared_norm", spec.hidden);
  add(behind, "attn_post_norm", spec.hidden);
  add(around && shared, "shared_post_norm", spec.hidden);
  add(around, "experts_post_norm", spec.hidden);
  add(behind, "ffn_post_norm", spec.hidden);
  add(spec.layer_scale, "layer_scale", 1);
  add(spec.expert_scales, "expert_scales", spec.experts);
}

// The names that DeltaNetParts gives to parts, and those of the checkpoint.
void AddDeltaNet(TensorList& list, const ModelSpec& spec, const std::string& store, const std::string& layer) {
  const DeltaNetShape& shape = *spec.delta_net;
  const std::string checkpoint = layer + "linear_attn.";
  list.Matrix(store + "q", checkpoint + "in_proj_q.weight", shape.KeyWidth(), spec.hidden);
  list.Matrix(store + "k", checkpoint + "in_proj_k.weight", shape.KeyWidth(), spec.hidden);
  list.Matrix(store + "v", checkpoint + "in_proj_v.weight", shape.ValueWidth(), spec.hidden);
  list.Matrix(store + "o", checkpoint + "out_proj.weight", spec.hidden, shape.ValueWidth());
  list.Matrix(store + "attention_gate", checkpoint + "in_proj_z.weight", shape.ValueWidth(), spec.hidden);
  list.Rows(store + "delta.convolution", checkpoint + "conv1d.taps", shape.taps, shape.ConvolvedWidth());
  list.Router(store + "delta.a", checkpoint + "in_proj_a.weight", shape.value_heads, spec.hidden);
  list.Router(store + "delta.b", checkpoint + "in_proj_b.weight", shape.value_heads, spec.hidden);
  list.Vector(store + "delta.bias", checkpoint + "dt_bias", shape.value_heads);
  list.Spelled(store + "delta.decay_rate", checkpoint + "A_log", shape.value_heads, Spelling::kLogOfNegative);
  list.Vector(store + "delta.norm", checkpoint + "norm.weight", shape.value_dim);
}

// The same of Kimi Delta Attention: what its convolutions have stands together in one part.
void AddKimiDelta(TensorList& list, const ModelSpec& spec, const std::string& store, const std::string& layer) {
  const DeltaNetShape& shape = *spec.delta_net;
  const std::string checkpoint = layer + "self_attn.";
  list.Matrix(store + "q", checkpoint + "q_proj.weight", shape.KeyWidth(), spec.hidden);
  list.Matrix(store + "k", checkpoint + "k_proj.weight", shape.KeyWidth(), spec.hidden);
  list.Matrix(store + "v", checkpoint + "v_proj.weight", shape.ValueWidth(), spec.hidden);
  list.Matrix(store + "o", checkpoint + "o_proj.weight", spec.hidden, shape.ValueWidth());
  list.Matrix(store + "delta.gate_in", checkpoint + "g_a_proj.weight", shape.gate_rank, spec.hidden);
  list.Matrix(store + "attention_gate", checkpoint + "g_b_proj.weight", shape.ValueWidth(), shape.gate_rank);
  list.Rows(store + "delta.convolution", checkpoint + "qkv_conv1d.taps", shape.taps, shape.ConvolvedWidth());
  list.Router(store + "delta.a_in", checkpoint + "f_a_proj.weight", shape.gate_rank, spec.hidden);
  list.Router(store + "delta.a", checkpoint + "f_b_proj.weight", shape.Decays(), shape.gate_rank);
  list.Router(store + "delta.b", checkpoint + "b_proj.weight", shape.value_heads, spec.hidden);
  list.Vector(store + "delta.bias", checkpoint + "dt_bias", shape.Decays());
  list.Spelled(store + "delta.decay_rate", checkpoint + "A_log.heads", shape.value_heads, Spelling::kLogOfNegative, true);
  list.Vector(store + "delta.norm", checkpoint + "o_norm.weight", shape.value_dim);
}

// The families' names for the parts of in_proj and of the convolution, and those of the checkpoint.
void AddMamba2(TensorList& list, const ModelSpec& spec, const std::string& store, const std::string& layer) {
  const Mamba2Shape& shape = *spec.mamba2;
  const std::string checkpoint = layer + "mamba.";
  list.Matrix(store + "q", checkpoint + "in_proj.query", shape.GroupsWidth(), spec.hidden);
  list.Matrix(store + "k", checkpoint + "in_proj.key", shape.GroupsWidth(), spec.hidden);
  list.Matrix(store + "v", checkpoint + "in_proj.value", shape.Width(), spec.hidden);
  list.Matrix(store + "o", checkpoint + "out_proj.weight", spec.hidden, shape.Width());
  list.Matrix(store + "attention_gate", checkpoint + "in_proj.gate", shape.Width(), spec.hidden);
  list.Rows(store + "convolution", checkpoint + "conv1d.taps", shape.taps, shape.ConvolvedWidth());
  if (shape.convolution_bias) list.Vector(store + "mamba2.convolution_bias", checkpoint + "conv1d.bias", shape.ConvolvedWidth());
  list.Router(store + "mamba2.step", checkpoint + "in_proj.step", shape.heads, spec.hidden);
  list.Vector(store + "mamba2.step_bias", checkpoint + "dt_bias", shape.heads);
  list.Spelled(store + "mamba2.decay_rate", checkpoint + "A_log", shape.heads, Spelling::kLogOfNegative);
  list.Vector(store + "mamba2.skip", checkpoint + "D", shape.heads);
  list.Vector(store + "mamba2.norm", checkpoint + "norm.weight", shape.Width());
}

// The same of a short convolution.
void AddShortConvolution(TensorList& list, const ModelSpec& spec, const std::string& store, const std::string& layer) {
  const std::string checkpoint = layer + "conv.";
  list.Matrix(store + "k", checkpoint + "in_proj.key", spec.hidden, spec.hidden);
  list.Matrix(store + "v", checkpoint + "in_proj.value", spec.hidden, spec.hidden);
  list.Matrix(store + "o", checkpoint + "out_proj.weight", spec.hidden, spec.hidden);
  list.Matrix(store + "attention_gate", checkpoint + "in_proj.gate", spec.hidden, spec.hidden);
  list.Rows(store + "convolution", checkpoint + "conv.taps", spec.short_convolution->taps, spec.hidden);
}

void AddRecurrence(TensorList& list, const ModelSpec& spec, const std::string& store, const std::string& layer) {
  if (spec.delta_net && spec.delta_net->gate_rank > 0) return AddKimiDelta(list, spec, store, layer);
  if (spec.delta_net) return AddDeltaNet(list, spec, store, layer);
  if (spec.mamba2) return AddMamba2(list, spec, store, layer);
  AddShortConvolution(list, spec, store, layer);
}

void AddExpertBiases(TensorList& list, const ModelSpec& spec, const std::string& store, const std::string& experts) {
  list.Rows(store + "expert_bias.gate", experts + "gate_proj_bias", spec.experts, spec.expert_ffn);
  list.Rows(store + "expert_bias.up", experts + "up_proj_bias", spec.experts, spec.expert_ffn);
  list.Rows(store + "expert_bias.down", experts + "down_proj_bias", spec.experts, spec.hidden);
}

void AddFfn(TensorList& list, const ModelSpec& spec, bool moe, const DecoderNames& names, const std::string& store,
            const std::string& checkpoint) {
  if (!spec.NormsBehind() && !spec.parallel) list.Norm(store + "ffn_norm", StrCat(checkpoint, names.ffn_norm), spec, names);
  if (!moe) {
    list.Ffn(store + "dense.", StrCat(checkpoint, names.dense, "."), names, spec, spec.dense_ffn);
    return;
  }
  const std::string block = StrCat(checkpoint, names.block, "."), router = StrCat(block, names.router);
  list.Router(store + "router", router + ".weight", spec.experts, spec.hidden);
  if (spec.router_bias) list.Vector(store + "router_bias", router + ".bias", spec.experts);
  if (spec.expert_bias) AddExpertBiases(list, spec, store, block + "experts.");
  if (spec.router_correction) {
    list.Vector(store + "router_correction", StrCat(block, names.correction), spec.experts, names.correction_is_row);
  }
  if (spec.shared_ffn > 0) list.Ffn(store + "shared.", StrCat(block, names.shared, "."), names, spec, spec.shared_ffn);
  if (spec.shared_gate) list.Router(store + "shared_gate", block + "shared_expert_gate.weight", 1, spec.hidden);
}

// gate_up_proj has gate's outputs, then up's. Outputs before inputs, or, `transposed`, behind them.
void AddStackedExperts(const ModelSpec& spec, LayerId layer, const std::string& prefix, bool transposed, ExpertTensorNamer name,
                       std::vector<TensorPart>& parts) {
  const auto add = [&](ExpertPart part, const char* whole, int rows, int cols, int64_t halves, int half) {
    const int64_t all_rows = halves * rows;
    for (int expert = 0; expert < spec.experts; ++expert) {
      const int64_t before = expert * all_rows * cols;
      parts.push_back(
          {.name = name(layer, expert, part),
           .whole = prefix + whole,
           .whole_shape = transposed ? ShapeOf({spec.experts, cols, all_rows}) : ShapeOf({spec.experts, all_rows, cols}),
           .rows = rows,
           .cols = cols,
           .offset = before + int64_t{half} * rows * (transposed ? 1 : cols),
           .row_stride = transposed ? 1 : cols,
           .col_stride = transposed ? all_rows : 1});
    }
  };
  add(ExpertPart::kGate, "gate_up_proj", spec.expert_ffn, spec.hidden, 2, 0);
  add(ExpertPart::kUp, "gate_up_proj", spec.expert_ffn, spec.hidden, 2, 1);
  add(ExpertPart::kDown, "down_proj", spec.hidden, spec.expert_ffn, 1, 0);
}

}  // namespace

std::vector<TrunkTensor> DecoderTensors(const ModelSpec& spec, const DecoderNames& names) {
  TensorList list;
  list.Matrix("embed", StrCat("model.", names.embed, ".weight"), spec.vocabulary, spec.hidden);
  if (!spec.tied_embeddings) list.Matrix("head", "lm_head.weight", spec.vocabulary, spec.hidden);
  if (spec.head_bias) list.Vector("head_bias", "lm_head.bias", spec.vocabulary);
  list.Norm("final_norm", StrCat("model.", names.final_norm), spec, names);
  for (int layer = 0; layer < spec.layers; ++layer) {
    const std::string store = StrCat("layers.", layer, ".");
    const std::string checkpoint = StrCat("model.layers.", layer, ".");
    const LayerId id(layer);
    if (spec.HasMixer(id) && !spec.NormsBehind())
      list.Norm(store + "attn_norm", StrCat(checkpoint, names.attention_norm), spec, names);
    if (spec.IsRecurrent(id)) AddRecurrence(list, spec, store, checkpoint);
    if (spec.HasAttention(id)) AddAttention(list, spec, spec.RotationOf(id), names, store, checkpoint);
    if (spec.HasFfn(id)) AddFfn(list, spec, spec.moe[layer], names, store, checkpoint);
    AddOwnVectors(list, spec, store);
    list.Rename(store, checkpoint, names.own);
  }
  return list.Take();
}

std::vector<uint64_t> ShapeOf(std::initializer_list<int64_t> extents) { return {extents.begin(), extents.end()}; }

// kv_b_proj has for each head the rows of its keys, then those of its values. k_b is transposed within a head: it takes queries
// to the latent.
std::vector<TensorPart> LatentParts(const ModelSpec& spec) {
  const int64_t rank = spec.latent->kv_rank, value_dim = spec.latent->value_dim, key_dim = spec.head_dim - spec.rotary_dims;
  const std::vector<uint64_t> shape = ShapeOf({spec.heads * (key_dim + value_dim), rank});
  std::vector<TensorPart> parts;
  for (int layer = 0; layer < spec.layers; ++layer) {
    const std::string checkpoint = StrCat("model.layers.", layer, ".");
    const std::string whole = checkpoint + "self_attn.kv_b_proj.weight";
    parts.push_back({.name = KeysOfLatent(checkpoint),
                     .whole = whole,
                     .whole_shape = shape,
                     .rows = spec.heads * spec.latent->kv_rank,
                     .cols = static_cast<int>(key_dim),
                     .row_stride = 1,
                     .col_stride = rank,
                     .group_rows = spec.latent->kv_rank,
                     .group_stride = (key_dim + value_dim) * rank});
    parts.push_back({.name = ValuesOfLatent(checkpoint),
                     .whole = whole,
                     .whole_shape = shape,
                     .rows = spec.heads * spec.latent->value_dim,
                     .cols = spec.latent->kv_rank,
                     .offset = key_dim * rank,
                     .row_stride = rank,
                     .group_rows = spec.latent->value_dim,
                     .group_stride = (key_dim + value_dim) * rank});
  }
  return parts;
}

void AddFusedExperts(const ModelSpec& spec, LayerId layer, const std::string& prefix, ExpertTensorNamer name,
                     std::vector<TensorPart>& parts) {
  AddStackedExperts(spec, layer, prefix, /*transposed=*/false, name, parts);
}

void AddTransposedExperts(const ModelSpec& spec, LayerId layer, const std::string& prefix, ExpertTensorNamer name,
                          std::vector<TensorPart>& parts) {
  AddStackedExperts(spec, layer, prefix, /*transposed=*/true, name, parts);
}

std::string MlpExpertsPrefix(LayerId layer) { return StrCat("model.layers.", layer.value(), ".mlp.experts."); }

std::vector<TensorPart> FusedMlpExperts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (const LayerId layer : spec.MoeLayers()) AddFusedExperts(spec, layer, MlpExpertsPrefix(layer), MlpExpertTensor, parts);
  return parts;
}

bool IsBehindTheLastLayer(const ModelSpec& spec, std::string_view checkpoint_name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!checkpoint_name.starts_with(kLayers)) return false;
  const std::string_view rest = checkpoint_name.substr(kLayers.size());
  int layer = -1;
  return absl::SimpleAtoi(ToAbsl(rest.substr(0, rest.find('.'))), &layer) && layer >= spec.layers;
}

std::string ExpertTensorName(LayerId layer, std::string_view moe_block, int expert, std::string_view projection) {
  return StrCat("model.layers.", layer.value(), ".", moe_block, ".experts.", expert, ".", projection, ".weight");
}

std::string SparseBlockExpertTensor(LayerId layer, int expert, ExpertPart part) {
  return ExpertTensorName(layer, kSparseBlock, expert, kSparseProjections[static_cast<size_t>(part)]);
}

std::string MlpExpertTensor(LayerId layer, int expert, ExpertPart part) {
  static constexpr std::string_view kProjections[kExpertParts] = {"gate_proj", "up_proj", "down_proj"};
  return ExpertTensorName(layer, "mlp", expert, kProjections[static_cast<size_t>(part)]);
}

}  // namespace moed
