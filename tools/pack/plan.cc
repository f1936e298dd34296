#include "tools/pack/plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/status.h"
#include "core/base/version.h"
#include "core/model/family.h"
#include "core/store/checksum.h"
#include "core/store/expert_norms.h"
#include "core/store/header.h"
#include "core/tokenizer/tokenizer.h"

namespace moed {
namespace {

constexpr std::string_view kHeadTensor = "lm_head.weight";

absl::Status WithPrefix(const absl::Status& status, std::string_view prefix) {
  return absl::Status(status.code(), StrCat(prefix, status.message()));
}

// Finds the tensors a family asks for and remembers which were asked for.
class TensorFinder {
 public:
  explicit TensorFinder(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  absl::StatusOr<const SourceTensor*> Take(const std::string& name, std::vector<uint64_t> shape) {
    const SourceTensor* tensor = checkpoint_.Find(name);
    if (tensor == nullptr) {
      return InvalidArgument(checkpoint_.folder(), ": tensor \"", name, "\" of shape ", ShapeName(shape), " is missing");
    }
    if (tensor->shape != shape) {
      return InvalidArgument(tensor->file->path(), ": tensor \"", name, "\" has shape ", ShapeName(tensor->shape), ", expected ",
                             ShapeName(shape));
    }
    taken_.insert(tensor->name);
    return tensor;
  }

  absl::Status CheckNothingLeft(std::string_view family) const {
    std::string_view first;
    size_t unknown = 0;
    for (const std::string_view name : checkpoint_.Names()) {
      if (taken_.count(name) == 0 && unknown++ == 0) first = name;
    }
    if (unknown == 0) return absl::OkStatus();
    const SourceTensor& tensor = *checkpoint_.Find(first);
    return InvalidArgument(tensor.file->path(), ": unknown tensor \"", first, "\" of shape ", ShapeName(tensor.shape), "; a ",
                           family, " model with this config.json has none of that name",
                           unknown > 1 ? StrCat(" (", unknown - 1, " more unknown tensors)") : "");
  }

 private:
  const Checkpoint& checkpoint_;
  std::set<std::string_view> taken_;
};

// Some exporters write the head although it is the embedding: allowed when it really is.
absl::Status CheckTiedHead(const SourceTensor& embed, const SourceTensor& head) {
  constexpr size_t kChunkBytes = 1 << 20;
  std::vector<std::byte> a(kChunkBytes), b(kChunkBytes);
  bool same = embed.type == head.type;
  for (uint64_t done = 0; same && done < embed.bytes; done += kChunkBytes) {
    const size_t count = std::min<uint64_t>(kChunkBytes, embed.bytes - done);
    MOED_RETURN_IF_ERROR(embed.file->ReadAt(embed.offset + done, std::span(a).first(count)));
    MOED_RETURN_IF_ERROR(head.file->ReadAt(head.offset + done, std::span(b).first(count)));
    same = std::equal(a.begin(), a.begin() + count, b.begin());
  }
  if (same) return absl::OkStatus();
  return InvalidArgument(head.file->path(), ": tensor \"", head.name, "\" differs from \"", embed.name,
                         "\", expected the same numbers since config.json says tie_word_embeddings");
}

absl::Status PlanTrunk(const Family& family, FormatId trunk_format, TensorFinder& finder, const Checkpoint& checkpoint,
                       PackPlan& plan) {
  for (const TrunkTensor& wanted : family.trunk_tensors(plan.spec)) {
    const auto rows = static_cast<uint64_t>(wanted.rows), cols = static_cast<uint64_t>(wanted.cols);
    const bool vector = wanted.role == TensorRole::kVector;
    using Shape = std::vector<uint64_t>;
    MOED_ASSIGN_OR_RETURN(const SourceTensor* source,
                          finder.Take(wanted.checkpoint_name, vector ? Shape{cols} : Shape{rows, cols}));
    const FormatId format = vector ? FormatId::kF32 : wanted.role == TensorRole::kRouter ? source->type->format : trunk_format;
    plan.description.trunk.push_back(
        {.name = wanted.store_name, .format = format, .vector = vector, .rows = wanted.rows, .cols = wanted.cols});
    plan.trunk.push_back(source);
    if (wanted.store_name == "embed" && plan.spec.tied_embeddings && checkpoint.Find(kHeadTensor) != nullptr) {
      MOED_ASSIGN_OR_RETURN(const SourceTensor* head, finder.Take(std::string(kHeadTensor), source->shape));
      MOED_RETURN_IF_ERROR(CheckTiedHead(*source, *head));
    }
  }
  plan.description.trunk.push_back({.name = std::string(kInverseFrequencies),
                                    .format = FormatId::kF32,
                                    .vector = true,
                                    .rows = 1,
                                    .cols = plan.spec.head_dim / 2});
  plan.trunk.push_back(nullptr);
  return absl::OkStatus();
}

absl::Status PlanExperts(const Family& family, const std::vector<Encoding>& encodings, TensorFinder& finder, PackPlan& plan) {
  const ModelSpec& spec = plan.spec;
  const std::array<MatrixShape, kExpertParts> shapes = {MatrixShape{spec.expert_ffn, spec.hidden},
                                                        MatrixShape{spec.expert_ffn, spec.hidden},
                                                        MatrixShape{spec.hidden, spec.expert_ffn}};
  plan.description.moe_layers = spec.MoeLayers();
  plan.description.experts_per_layer = spec.experts;
  for (const Encoding& encoding : encodings) plan.description.precisions.push_back(LayOutExpert(encoding.format, shapes));
  for (const LayerId layer : plan.description.moe_layers) {
    for (int expert = 0; expert < spec.experts; ++expert) {
      for (int p = 0; p < kExpertParts; ++p) {
        const std::string name = family.expert_tensor(layer, expert, static_cast<ExpertPart>(p));
        MOED_ASSIGN_OR_RETURN(const SourceTensor* source,
                              finder.Take(name, {static_cast<uint64_t>(shapes[p].rows), static_cast<uint64_t>(shapes[p].cols)}));
        plan.experts.push_back(source);
      }
    }
  }
  plan.description.trunk.push_back(ExpertNormsTensor(plan.description));
  plan.trunk.push_back(nullptr);
  return absl::OkStatus();
}

absl::Status PlanTokenizer(const Checkpoint& checkpoint, PackPlan& plan) {
  const std::string prefix = checkpoint.folder() + ": ";
  absl::StatusOr<std::string> blob = CompileTokenizer(checkpoint.tokenizer());
  if (!blob.ok()) return WithPrefix(blob.status(), prefix);
  plan.description.tokenizer = *std::move(blob);
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromBlob(plan.description.tokenizer);
  if (!tokenizer.ok()) return WithPrefix(tokenizer.status(), prefix);
  if ((*tokenizer)->vocabulary_size() > plan.spec.vocabulary) {
    return InvalidArgument(prefix, "tokenizer.json has token ids up to ", (*tokenizer)->vocabulary_size() - 1,
                           ", expected less than vocab_size = ", plan.spec.vocabulary, " of config.json");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<float> InverseFrequencies(double theta, int head_dim) {
  std::vector<float> frequencies(head_dim / 2);
  for (int i = 0; i < head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    // powf through double: the last bit does not depend on the math library.
    frequencies[i] =
        1.0f / static_cast<float>(std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent)));
  }
  return frequencies;
}

Encoding PackPlan::TrunkEncoding(size_t tensor) const {
  const FormatId format = description.trunk[tensor].format;
  return format == encodings.trunk.format ? encodings.trunk : Encoding{format};  // routers keep their own
}

uint64_t PackPlan::piece_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < layout.piece_count(); ++i) bytes += layout.PieceAt(i).bytes;
  return bytes;
}

absl::StatusOr<PackPlan> MakePlan(const Checkpoint& checkpoint, const PackEncodings& encodings) {
  const std::string prefix = checkpoint.folder() + ": ";
  const absl::StatusOr<const Family*> family = FamilyOf(checkpoint.config());
  if (!family.ok()) return WithPrefix(family.status(), prefix);
  absl::StatusOr<ModelSpec> spec = (*family)->read_spec(checkpoint.config(), checkpoint.generation_config());
  if (!spec.ok()) return WithPrefix(spec.status(), prefix);

  PackPlan plan;
  plan.spec = *std::move(spec);
  plan.encodings = encodings;
  plan.description.model_spec = SpecToJson(plan.spec);
  TensorFinder finder(checkpoint);
  MOED_RETURN_IF_ERROR(PlanTrunk(**family, encodings.trunk.format, finder, checkpoint, plan));
  MOED_RETURN_IF_ERROR(PlanExperts(**family, encodings.experts, finder, plan));
  LayOutTrunk(plan.description);
  MOED_RETURN_IF_ERROR(finder.CheckNothingLeft((*family)->model_type));
  MOED_RETURN_IF_ERROR(PlanTokenizer(checkpoint, plan));
  MOED_ASSIGN_OR_RETURN(plan.layout, FileLayout::Plan(plan.description, plan.description.tokenizer.size()));
  const std::string names =
      StrCat(EncodingName(encodings.trunk), ";", JoinNames(encodings.experts, [](const Encoding& e) { return EncodingName(e); }));
  plan.identity = Checksum(StrCat(Version(), "\n", kStoreVersion, "\n", names, "\n", checkpoint.fingerprint()));
  return plan;
}

}  // namespace moed
