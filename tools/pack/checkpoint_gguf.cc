// A GGUF file, with all its parts.
#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/status.h"
#include "tools/pack/chat_settings.h"
#include "tools/pack/checkpoint.h"
#include "tools/pack/gguf/architecture.h"
#include "tools/pack/gguf/tokenizer.h"
#include "tools/pack/nvfp4.h"
#include "tools/pack/tensor_parts.h"

namespace moed {
namespace {

SourceTensor AsSource(const GgufTensor& tensor) {
  return {CurrentGgufName(tensor.name), tensor.type, tensor.shape, tensor.file, tensor.offset, tensor.bytes};
}

// Converters differ in whether one row is a vector or a matrix.
void GiveShapeOfOneRow(SourceTensor& tensor, std::vector<uint64_t> shape) {
  const bool one_row = tensor.shape.size() == 1 || (tensor.shape.size() == 2 && tensor.shape[0] == 1);
  if (one_row && tensor.shape.back() == shape.back()) tensor.shape = std::move(shape);
}

// Matrices that stand side by side, as (matrices, rows, columns), one below the other.
void Stack(SourceTensor& tensor) {
  const uint64_t matrices = tensor.shape[0];
  tensor.shape.erase(tensor.shape.begin());
  tensor.shape[0] *= matrices;
}

// A convolution of one input a channel, and numbers by head, have extents of 1, more or fewer of them by converter.
void DropExtentsOfOne(SourceTensor& tensor) {
  while (tensor.shape.size() > 2) {
    const auto one = std::ranges::find(tensor.shape, uint64_t{1});
    if (one == tensor.shape.end()) return;
    tensor.shape.erase(one);
  }
}

// Rows [first, first + rows) of each expert of (experts, rows, columns).
void AddExperts(const SourceTensor& fused, std::string_view name, uint64_t first, uint64_t rows,
                std::vector<SourceTensor>& experts) {
  const uint64_t row_bytes = fused.bytes / (fused.shape[0] * fused.shape[1]);
  for (uint64_t i = 0; i < fused.shape[0]; ++i) {
    SourceTensor expert = fused;
    expert.name = StrCat(name, "[", i, "]");
    expert.shape = {rows, fused.shape[2]};
    expert.bytes = rows * row_bytes;
    expert.offset += (i * fused.shape[1] + first) * row_bytes;
    experts.push_back(std::move(expert));
  }
}

// Gate may stand above up.
std::vector<SourceTensor> Experts(const SourceTensor& fused) {
  constexpr std::string_view kBoth = ".ffn_gate_up_exps.";
  std::vector<SourceTensor> experts;
  const uint64_t rows = fused.shape[1];
  if (const size_t at = fused.name.find(kBoth); at != std::string::npos && rows % 2 == 0) {
    const auto named = [&](std::string_view part) { return std::string(fused.name).replace(at, kBoth.size(), part); };
    AddExperts(fused, named(".ffn_gate_exps."), 0, rows / 2, experts);
    AddExperts(fused, named(".ffn_up_exps."), rows / 2, rows / 2, experts);
  } else {
    AddExperts(fused, fused.name, 0, rows, experts);
  }
  return experts;
}

constexpr std::string_view kWeight = ".weight", kScale = ".scale", kInputScale = ".input_scale";

// Of a matrix of NVFP4, or of its input, which is not followed.
bool IsScale(const GgufModel& model, std::string_view name) {
  const std::string_view end = name.ends_with(kInputScale) ? kInputScale : kScale;
  if (!name.ends_with(end)) return false;
  const auto matrix = model.tensors.find(StrCat(name.substr(0, name.size() - end.size()), kWeight));
  return matrix != model.tensors.end() && matrix->second.type->kept == FormatId::kNvfp4;
}

std::optional<SourceTensor> ScaleOf(const GgufModel& model, std::string_view name) {
  if (!name.ends_with(kWeight)) return std::nullopt;
  const auto scale = model.tensors.find(StrCat(name.substr(0, name.size() - kWeight.size()), kScale));
  if (scale == model.tensors.end()) return std::nullopt;
  return AsSource(scale->second);
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::OpenGgufFile(const std::string& path) {
  constexpr uint64_t kMostExperts = 1 << 14;
  MOED_ASSIGN_OR_RETURN(const GgufModel model, OpenGguf(path));
  const auto in_file = [&](const absl::Status& status) { return Annotate(status, model.path()); };
  const absl::StatusOr<const GgufArchitecture*> architecture = ArchitectureOf(model.metadata);
  if (!architecture.ok()) return in_file(architecture.status());
  absl::StatusOr<ModelSpec> spec = (*architecture)->read_spec(model);
  if (!spec.ok()) return in_file(spec.status());
  absl::StatusOr<std::string> tokenizer = TokenizerJson(model.metadata);
  if (!tokenizer.ok()) return in_file(tokenizer.status());

  Checkpoint checkpoint;
  checkpoint.path_ = path;
  checkpoint.architecture_ = *architecture;
  checkpoint.spec_ = *std::move(spec);
  checkpoint.tokenizer_ = *std::move(tokenizer);
  MOED_ASSIGN_OR_RETURN(checkpoint.chat_, ReadChatSettings(model.metadata));
  MOED_ASSIGN_OR_RETURN(checkpoint.family_, FamilyNamed(checkpoint.spec_.family));
  for (const auto& file : model.files) MOED_RETURN_IF_ERROR(checkpoint.AddFile(file->path(), file->size()));
  const int head_dim = checkpoint.spec_.head_dim;
  for (const auto& [name, tensor] : model.tensors) {
    if (PredictsFurther(model, checkpoint.spec_, name)) continue;
    if (std::ranges::find((*architecture)->of_spec, name) != (*architecture)->of_spec.end()) continue;
    if (IsScale(model, name)) continue;
    SourceTensor source = AsSource(tensor);
    const std::optional<SourceTensor> scale = ScaleOf(model, name);
    const bool q = name.ends_with(".attn_q.weight"), k = name.ends_with(".attn_k.weight");
    if ((*architecture)->pairs_neighbours && (q || k)) {
      source.row_order = NeighbourPairsOrder(q ? checkpoint.spec_.heads : checkpoint.spec_.kv_heads, head_dim);
    }
    const bool experts = name.ends_with("_exps.weight");
    if (!experts) DropExtentsOfOne(source);
    if (!experts && source.shape.size() == 3) Stack(source);
    if (!experts || source.shape.size() != 3 || source.shape[0] > kMostExperts) {
      MOED_RETURN_IF_ERROR(GiveNvfp4Scale(scale ? &*scale : nullptr, 0, 1, source));
      MOED_RETURN_IF_ERROR(checkpoint.AddTensor(std::move(source)));
      continue;
    }
    const uint64_t count = source.shape[0];
    uint64_t index = 0;
    for (SourceTensor& expert : Experts(source)) {
      MOED_RETURN_IF_ERROR(GiveNvfp4Scale(scale ? &*scale : nullptr, index++ % count, count, expert));
      MOED_RETURN_IF_ERROR(checkpoint.AddTensor(std::move(expert)));
    }
  }
  if ((*architecture)->parts != nullptr) {
    MOED_RETURN_IF_ERROR(DivideTensors((*architecture)->parts(checkpoint.spec_), checkpoint.tensors_));
  }
  for (const TrunkTensor& wanted : checkpoint.family_->trunk_tensors(checkpoint.spec_)) {
    const auto at = checkpoint.tensors_.find(checkpoint.NameOf(wanted));
    if (wanted.rows == 1 && at != checkpoint.tensors_.end()) GiveShapeOfOneRow(at->second, checkpoint.ShapeOf(wanted));
  }
  return checkpoint;
}

}  // namespace moed
