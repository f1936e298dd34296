#include "core/model/weights.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "core/base/status.h"
#include "core/model/expert_shapes.h"
#include "core/model/family.h"
#include "core/model/stored_embedding.h"
#include "core/store/expert_norms.h"
#include "core/store/store.h"

namespace moed {
namespace {

std::string Shape(int rows, int cols) { return StrCat("(", rows, ", ", cols, ")"); }

// Where the trunk's bytes are: in one buffer, but for `left_out`.
struct TrunkPlaces {
  TrunkRange left_out;  // whole pages, maybe none
  std::span<std::byte> resident;

  bool Has(uint64_t offset) const { return offset < left_out.begin || offset >= left_out.end; }
  // Up to what is left out, or to the end. `offset` is not left out.
  std::span<std::byte> From(uint64_t offset) const {
    if (offset >= left_out.end) return resident.subspan(offset - left_out.bytes());
    return resident.subspan(offset, left_out.begin - offset);
  }
  // How many bytes from there on are, or are not, left out.
  uint64_t Alike(uint64_t offset) const { return Has(offset) ? From(offset).size() : left_out.end - offset; }
};

// Hands out views of the tensors that the family wants. The first error sticks.
class TrunkBinder {
 public:
  TrunkBinder(const StoreReader& store, const TrunkPlaces& places, std::vector<TrunkTensor> wanted)
      : store_(store), places_(places) {
    for (TrunkTensor& tensor : wanted) {
      std::string name = tensor.store_name;
      wanted_.emplace(std::move(name), std::move(tensor));
    }
  }

  // Null data when the family has no such tensor.
  MatrixView Matrix(const std::string& name) {
    const TensorInfo* info = Find(name);
    if (info == nullptr) return {};
    return {info->format, info->rows, info->cols, places_.From(info->offset).data()};
  }
  const float* Vector(const std::string& name) {
    const TensorInfo* info = Find(name);
    return info == nullptr ? nullptr : reinterpret_cast<const float*>(places_.From(info->offset).data());
  }
  // Read at once; 1 when the family has no such tensor.
  float Number(const std::string& name) {
    float number = 1;
    const TensorInfo* info = Find(name);
    if (info != nullptr) status_ = store_.ReadTensor(*info, std::as_writable_bytes(std::span(&number, 1)));
    return number;
  }
  FfnWeights Ffn(const std::string& prefix) {
    return {Matrix(prefix + "gate"), Matrix(prefix + "up"), Matrix(prefix + "down"), Vector(prefix + "up_bias"),
            Vector(prefix + "down_bias")};
  }

  absl::Status Finish() const {
    MOED_RETURN_IF_ERROR(status_);
    for (const TensorInfo& info : store_.description().trunk) {
      if (!wanted_.contains(info.name) && info.name != kExpertNorms)
        return DataLoss(store_.path(), ": unknown trunk tensor ", info.name);
    }
    return absl::OkStatus();
  }

 private:
  const TensorInfo* Find(const std::string& name) {
    const auto wanted = wanted_.find(name);
    if (wanted == wanted_.end() || !status_.ok()) return nullptr;
    absl::StatusOr<const TensorInfo*> info = store_.FindTensor(name);
    status_ = info.ok() ? Check(**info, wanted->second) : DataLoss(store_.path(), ": ", info.status().message());
    return status_.ok() ? *info : nullptr;
  }

  absl::Status Check(const TensorInfo& info, const TrunkTensor& wanted) const {
    const bool vector = wanted.role == TensorRole::kVector;
    const int rows = wanted.stored_rows(), cols = wanted.stored_cols();
    if (info.rows != rows || info.cols != cols) {
      return DataLoss(store_.path(), ": tensor ", info.name, " has shape ", Shape(info.rows, info.cols), ", expected ",
                      Shape(rows, cols));
    }
    if (info.vector != vector) {
      return DataLoss(store_.path(), ": tensor ", info.name, " is stored as a ", info.vector ? "vector" : "matrix");
    }
    const uint64_t bytes =
        vector ? sizeof(float) * static_cast<uint64_t>(info.cols) : PackedBytes(info.format, info.rows, info.cols);
    const uint64_t trunk_bytes = store_.description().trunk_bytes;
    if (info.bytes != bytes || info.offset % 64 != 0 || bytes > trunk_bytes || info.offset > trunk_bytes - bytes) {
      return DataLoss(store_.path(), ": tensor ", info.name, " of ", info.bytes, " bytes at ", info.offset, ", expected ", bytes,
                      " bytes inside a trunk of ", trunk_bytes);
    }
    return absl::OkStatus();
  }

  const StoreReader& store_;
  const TrunkPlaces places_;
  absl::flat_hash_map<std::string, TrunkTensor> wanted_;
  absl::Status status_;
};

LayerWeights BindLayer(TrunkBinder& trunk, int layer) {
  const std::string prefix = StrCat("layers.", layer, ".");
  LayerWeights weights;
  weights.attn_norm = trunk.Vector(prefix + "attn_norm");
  weights.attn_norm_bias = trunk.Vector(prefix + "attn_norm_bias");
  weights.q = trunk.Matrix(prefix + "q");
  weights.k = trunk.Matrix(prefix + "k");
  weights.v = trunk.Matrix(prefix + "v");
  weights.o = trunk.Matrix(prefix + "o");
  weights.latent = {.q_a = trunk.Matrix(prefix + "q_a"),
                    .q_a_norm = trunk.Vector(prefix + "q_a_norm"),
                    .kv_a = trunk.Matrix(prefix + "kv_a"),
                    .kv_a_norm = trunk.Vector(prefix + "kv_a_norm"),
                    .k_b = trunk.Matrix(prefix + "k_b"),
                    .v_b = trunk.Matrix(prefix + "v_b")};
  weights.cross = {.norm = trunk.Vector(prefix + "cross.norm"),
                   .q = trunk.Matrix(prefix + "cross.q"),
                   .k = trunk.Matrix(prefix + "cross.k"),
                   .v = trunk.Matrix(prefix + "cross.v"),
                   .o = trunk.Matrix(prefix + "cross.o")};
  weights.attention_gate = trunk.Matrix(prefix + "attention_gate");
  const float* const of_delta_net = trunk.Vector(prefix + "delta.convolution");
  weights.convolution = of_delta_net != nullptr ? of_delta_net : trunk.Vector(prefix + "convolution");
  weights.delta = {.a_in = trunk.Matrix(prefix + "delta.a_in"),
                   .a = trunk.Matrix(prefix + "delta.a"),
                   .b = trunk.Matrix(prefix + "delta.b"),
                   .gate_in = trunk.Matrix(prefix + "delta.gate_in"),
                   .bias = trunk.Vector(prefix + "delta.bias"),
                   .decay_rate = trunk.Vector(prefix + "delta.decay_rate"),
                   .norm = trunk.Vector(prefix + "delta.norm")};
  weights.mamba2 = {.convolution_bias = trunk.Vector(prefix + "mamba2.convolution_bias"),
                    .step = trunk.Matrix(prefix + "mamba2.step"),
                    .step_bias = trunk.Vector(prefix + "mamba2.step_bias"),
                    .decay_rate = trunk.Vector(prefix + "mamba2.decay_rate"),
                    .skip = trunk.Vector(prefix + "mamba2.skip"),
                    .norm = trunk.Vector(prefix + "mamba2.norm")};
  weights.q_bias = trunk.Vector(prefix + "q_bias");
  weights.k_bias = trunk.Vector(prefix + "k_bias");
  weights.v_bias = trunk.Vector(prefix + "v_bias");
  weights.o_bias = trunk.Vector(prefix + "o_bias");
  weights.sinks = trunk.Vector(prefix + "sinks");
  weights.q_norm = trunk.Vector(prefix + "q_norm");
  weights.k_norm = trunk.Vector(prefix + "k_norm");
  weights.ffn_norm = trunk.Vector(prefix + "ffn_norm");
  weights.ffn_norm_bias = trunk.Vector(prefix + "ffn_norm_bias");
  weights.router_norm = trunk.Vector(prefix + "router_norm");
  weights.shared_norm = trunk.Vector(prefix + "shared_norm");
  weights.attn_post_norm = trunk.Vector(prefix + "attn_post_norm");
  weights.attn_post_norm_bias = trunk.Vector(prefix + "attn_post_norm_bias");
  weights.shared_post_norm = trunk.Vector(prefix + "shared_post_norm");
  weights.experts_post_norm = trunk.Vector(prefix + "experts_post_norm");
  weights.ffn_post_norm = trunk.Vector(prefix + "ffn_post_norm");
  weights.ffn_post_norm_bias = trunk.Vector(prefix + "ffn_post_norm_bias");
  weights.layer_scale = trunk.Number(prefix + "layer_scale");
  weights.expert_scales = trunk.Vector(prefix + "expert_scales");
  weights.router = trunk.Matrix(prefix + "router");
  weights.router_bias = trunk.Vector(prefix + "router_bias");
  weights.router_correction = trunk.Vector(prefix + "router_correction");
  weights.expert_bias = {.gate = trunk.Vector(prefix + "expert_bias.gate"),
                         .up = trunk.Vector(prefix + "expert_bias.up"),
                         .down = trunk.Vector(prefix + "expert_bias.down")};
  weights.shared_gate = trunk.Matrix(prefix + "shared_gate");
  weights.bypass = trunk.Matrix(prefix + "bypass");
  weights.shared = trunk.Ffn(prefix + "shared.");
  weights.dense = trunk.Ffn(prefix + "dense.");
  return weights;
}

}  // namespace

Weights::Weights() = default;
Weights::Weights(Weights&&) noexcept = default;
Weights::~Weights() = default;

FfnActivation ActivationOf(const ModelSpec& spec) {
  if (spec.activation == Activation::kRelu) return {GateFunction::kRelu};
  if (spec.activation == Activation::kSquaredRelu) return {GateFunction::kSquaredRelu};
  if (spec.activation == Activation::kGatedRelu) return {GateFunction::kReGlu};
  if (spec.activation == Activation::kGelu) return {GateFunction::kGeGlu};
  if (!spec.swiglu_limits) return {GateFunction::kSwiGlu};
  const auto [alpha, limit] = *spec.swiglu_limits;
  return {GateFunction::kClampedSwiGlu, {static_cast<float>(alpha), static_cast<float>(limit)}};
}

RouterShape RouterOf(const ModelSpec& spec, const LayerWeights& weights) {
  return {.experts = spec.experts,
          .top_k = spec.top_k,
          .normalize = spec.norm_topk_prob,
          .scoring = spec.router_scoring,
          .correction = weights.router_correction,
          .groups = spec.router_groups,
          .kept_groups = spec.router_kept_groups,
          .group_rank = spec.router_group_rank,
          .epsilon = static_cast<float>(spec.router_epsilon),
          .jitter = static_cast<float>(spec.router_jitter)};
}

namespace {

constexpr uint64_t kStagingBytes = 8 << 20;

// Memory for pieces of what the host cannot write or what has no place; of the latter no more than is held in its stead later.
uint64_t StagingBytes(const StoreReader& store, ComputeBackend& backend, const TensorInfo* left_out) {
  if (!backend.memory().unified()) return std::min(store.description().trunk_bytes, kStagingBytes);
  return left_out == nullptr ? 0 : std::min(StoredEmbedding::MemoryOf(*left_out).working, kStagingBytes);
}

// To where operations read it, by way of `staging` bytes where it cannot be read there. `embedding`, which hears of all, may be
// null.
absl::Status ReadTrunk(const StoreReader& store, ComputeBackend& backend, const TrunkPlaces& places, ReadBackend* reads,
                       MatrixPanels* embedding, uint64_t staging) {
  BackendMemory& memory = backend.memory();
  const bool writes = memory.unified();
  Buffer pieces;
  if (staging > 0) {
    MOED_ASSIGN_OR_RETURN(pieces, memory.shared().Allocate(staging));
  }
  const auto place = [&](uint64_t offset) {
    if (writes && places.Has(offset)) return places.From(offset);
    return pieces.span().first(std::min<uint64_t>(staging, places.Alike(offset)));
  };
  return store.ReadTrunk(reads, place, [&](uint64_t offset, std::span<const std::byte> piece) {
    if (embedding != nullptr) embedding->Note(offset, piece);
    if (writes || !places.Has(offset)) return absl::OkStatus();
    memory.Copy(places.From(offset).data(), piece.data(), piece.size());
    return backend.Fence();
  });
}

}  // namespace

absl::StatusOr<Weights> LoadWeights(const StoreReader& store, const ModelSpec& spec, ComputeBackend& backend, ReadBackend* reads,
                                    ReadBackend* rows) {
  MOED_ASSIGN_OR_RETURN(const Family* family, FamilyNamed(spec.family));
  Weights weights;
  TrunkPlaces places;
  const TensorInfo* table = nullptr;
  std::optional<MatrixPanels> panels;
  if (rows != nullptr) {
    MOED_ASSIGN_OR_RETURN(table, store.FindTensor(kEmbeddingTensor));
    panels.emplace(store, *table, *rows);
    places.left_out = MatrixPanels::PagesOf(*table);
  }
  weights.bytes = store.description().trunk_bytes - places.left_out.bytes();
  MOED_ASSIGN_OR_RETURN(weights.buffer, backend.memory().working().Allocate(weights.bytes));
  places.resident = weights.buffer.span().first(weights.bytes);
  std::vector<TrunkTensor> wanted = family->trunk_tensors(spec);
  wanted.push_back({"rope.inv_freq", "", TensorRole::kVector, 1, spec.FirstFrequency(spec.rotation_count())});
  TrunkBinder trunk(store, places, std::move(wanted));
  weights.embed = trunk.Matrix(std::string(kEmbeddingTensor));
  if (panels) weights.embed = {};
  weights.head = spec.tied_embeddings ? weights.embed : trunk.Matrix("head");
  weights.final_norm = trunk.Vector("final_norm");
  weights.final_norm_bias = trunk.Vector("final_norm_bias");
  weights.head_bias = trunk.Vector("head_bias");
  weights.encoder_norm = trunk.Vector("encoder_norm");
  weights.positions = trunk.Matrix("positions");
  weights.extra_positions = trunk.Matrix("extra_positions");
  weights.last_project = trunk.Matrix("last_project");
  weights.last_project_bias = trunk.Vector("last_project_bias");
  for (const std::string_view bias : {kEncoderBias, kDecoderBias}) trunk.Vector(std::string(bias));  // see FillPositionBiases
  weights.inv_freq = trunk.Vector("rope.inv_freq");
  for (int layer = 0; layer < spec.layers; ++layer) {
    LayerWeights& bound = weights.layers.emplace_back(BindLayer(trunk, layer));
    if (!spec.parallel) continue;
    bound.ffn_norm = bound.attn_norm;
    bound.ffn_norm_bias = bound.attn_norm_bias;
  }
  MOED_RETURN_IF_ERROR(trunk.Finish());
  const uint64_t staging = StagingBytes(store, backend, table);
  MOED_RETURN_IF_ERROR(ReadTrunk(store, backend, places, reads, panels ? &*panels : nullptr, staging));
  if (panels) {
    MOED_ASSIGN_OR_RETURN(weights.stored_embedding, StoredEmbedding::Create(*std::move(panels), *table, backend));
  }
  return weights;
}

namespace {

absl::Status CheckLayout(const ExpertLayout& layout, const ModelSpec& spec) {
  const PartShapes shapes = ExpertShapes(spec);
  if (const size_t parts = PartsOf(shapes).size(); layout.segments.size() != parts) {
    return DataLoss("the experts have ", layout.segments.size(), " parts, expected ", parts);
  }
  for (const ExpertSegment& segment : layout.segments) {
    const auto [rows, cols] = shapes[static_cast<size_t>(segment.part)];
    const uint64_t bytes = PackedBytes(segment.format, rows, cols);
    if (segment.rows == rows && segment.cols == cols && segment.bytes == bytes) continue;
    return DataLoss(PartName(segment.part), " of the ", FormatOf(segment.format).name, " experts has shape ",
                    Shape(segment.rows, segment.cols), " and ", segment.bytes, " bytes, expected ", Shape(rows, cols), " and ",
                    bytes, " bytes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckExperts(const StoreDescription& description, const ModelSpec& spec) {
  if (description.moe_layers != spec.MoeLayers()) return DataLoss("the store's layers with experts are not the model's");
  if (description.experts_per_layer != spec.experts) {
    return DataLoss("the store has ", description.experts_per_layer, " experts a layer, the model ", spec.experts);
  }
  if (description.precisions.empty()) return DataLoss("the store has no expert precision");
  for (const ExpertPrecision& precision : description.precisions) {
    for (const ExpertLayout& layout : precision.layers) MOED_RETURN_IF_ERROR(CheckLayout(layout, spec));
  }
  return absl::OkStatus();
}

}  // namespace moed
