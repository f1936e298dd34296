// A GGUF file, with all its parts.
#include <utility>

#include "core/base/status.h"
#include "tools/pack/checkpoint.h"
#include "tools/pack/gguf/architecture.h"
#include "tools/pack/gguf/tokenizer.h"

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

// Each expert of (experts, rows, columns).
std::vector<SourceTensor> Experts(const SourceTensor& fused) {
  std::vector<SourceTensor> experts;
  for (uint64_t i = 0; i < fused.shape[0]; ++i) {
    SourceTensor expert = fused;
    expert.name = StrCat(fused.name, "[", i, "]");
    expert.shape.erase(expert.shape.begin());
    expert.bytes = fused.bytes / fused.shape[0];
    expert.offset += i * expert.bytes;
    experts.push_back(std::move(expert));
  }
  return experts;
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
  if (constexpr std::string_view kTemplate = "tokenizer.chat_template"; model.metadata.Has(kTemplate)) {
    MOED_ASSIGN_OR_RETURN(checkpoint.chat_template_, model.metadata.String(kTemplate));
  }
  MOED_ASSIGN_OR_RETURN(checkpoint.family_, FamilyNamed(checkpoint.spec_.family));
  for (const auto& file : model.files) MOED_RETURN_IF_ERROR(checkpoint.AddFile(file->path(), file->size()));
  const int head_dim = checkpoint.spec_.head_dim;
  for (const auto& [name, tensor] : model.tensors) {
    if (PredictsFurther(model, checkpoint.spec_, name)) continue;
    SourceTensor source = AsSource(tensor);
    const bool q = name.ends_with(".attn_q.weight"), k = name.ends_with(".attn_k.weight");
    if ((*architecture)->pairs_neighbours && (q || k)) {
      source.row_order = NeighbourPairsOrder(q ? checkpoint.spec_.heads : checkpoint.spec_.kv_heads, head_dim);
    }
    const bool experts = name.ends_with("_exps.weight");
    if (!experts && source.shape.size() == 3) Stack(source);
    if (!experts || source.shape.size() != 3 || source.shape[0] > kMostExperts) {
      MOED_RETURN_IF_ERROR(checkpoint.AddTensor(std::move(source)));
      continue;
    }
    for (SourceTensor& expert : Experts(source)) MOED_RETURN_IF_ERROR(checkpoint.AddTensor(std::move(expert)));
  }
  for (const TrunkTensor& wanted : checkpoint.family_->trunk_tensors(checkpoint.spec_)) {
    const auto at = checkpoint.tensors_.find(checkpoint.NameOf(wanted));
    if (wanted.rows == 1 && at != checkpoint.tensors_.end()) GiveShapeOfOneRow(at->second, checkpoint.ShapeOf(wanted));
  }
  return checkpoint;
}

}  // namespace moed
