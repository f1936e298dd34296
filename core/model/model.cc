#include "core/model/model.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "core/base/status.h"
#include "core/model/decoder.h"
#include "core/model/family.h"
#include "core/model/position_bias.h"
#include "core/model/scratch.h"
#include "core/model/spec_check.h"
#include "core/model/stored_embedding.h"
#include "core/model/weights.h"
#include "core/store/store.h"

namespace moed {
namespace {

absl::Status CheckOptions(const ModelSpec& spec, const ModelOptions& options, const KvPool& kv) {
  if (options.max_step_tokens < 1)
    return InvalidArgument("max_step_tokens = ", options.max_step_tokens, "; at least 1 is needed");
  if (options.own_step_tokens < 0 || options.own_step_tokens > options.max_step_tokens) {
    return InvalidArgument("own_step_tokens = ", options.own_step_tokens, " is outside 0..", options.max_step_tokens);
  }
  if (options.logits_rows < 1) return InvalidArgument("logits_rows = ", options.logits_rows, "; at least 1 is needed");
  if (options.max_context < 1 || options.max_context > spec.max_positions) {
    return InvalidArgument("max_context = ", options.max_context, " is outside 1..", spec.max_positions,
                           ", the model's positions");
  }
  if (kv.slots() > 0 && options.max_context > kv.max_context()) {
    return InvalidArgument("max_context = ", options.max_context, " is more than the KV pool's ", kv.max_context());
  }
  return absl::OkStatus();
}

absl::Status CheckStoredEmbedding(const ModelSpec& spec, const ReadBackend* rows) {
  constexpr std::string_view kRefused = "the embedding cannot stay in the store: ";
  if (rows == nullptr) return InvalidArgument(kRefused, "nothing reads its rows");
  if (spec.tied_embeddings) return InvalidArgument(kRefused, "it is the head as well, which every token reads whole");
  return absl::OkStatus();
}

// What a long context changes, if anything.
ModelSpec OfContext(ModelSpec spec, int max_context) {
  if (max_context > spec.UsualContext()) spec.rotations.assign(spec.layers, 1);
  return spec;
}

}  // namespace

uint64_t Model::ScratchBytes(const ModelSpec& spec, const ModelOptions& options, int threads) {
  return moed::ScratchBytes(spec, options, threads);
}

bool Model::LetsProcessorCompute(const ModelSpec& spec) {
  return !spec.NormsAround() && !spec.expert_bias && !spec.weighs_inputs;
}

InputForms Model::ExpertInputs(const StoreDescription& store) {
  InputForms forms;
  for (const ExpertPrecision& precision : store.precisions) {
    for (const ExpertLayout& layout : precision.layers) {
      for (const ExpertSegment& segment : layout.segments) forms = forms | InputForms::Of({segment.format});
    }
  }
  for (const TensorInfo& tensor : store.trunk) {
    if (absl::StrContains(tensor.name, ".shared.")) forms = forms | InputForms::Of({tensor.format});
  }
  return forms;
}

Model::StoredEmbeddingBytes Model::BytesOfStoredEmbedding(const StoreDescription& description, const ModelSpec& spec) {
  const auto table = std::ranges::find(description.trunk, kEmbeddingTensor, &TensorInfo::name);
  if (spec.tied_embeddings || table == description.trunk.end()) return {};
  const EmbeddingMemory held = StoredEmbedding::MemoryOf(*table);
  return {MatrixPanels::PagesOf(*table).bytes(), held.working, held.host};
}

uint64_t Model::LentBytes(const ModelSpec& spec, const ModelOptions& options) {
  return moed::LentBytes(spec, options, options.max_step_tokens);
}

absl::StatusOr<std::unique_ptr<Model>> Model::Load(const ModelParts& parts, const ModelOptions& options) {
  const auto& [store, spec, backend, kv, trace, trunk, rows, processor] = parts;
  MOED_RETURN_IF_ERROR(CheckSpec(spec));
  MOED_RETURN_IF_ERROR(CheckOptions(spec, options, kv));
  BackendMemory& memory = backend.memory();
  if (&kv.memory() != &memory) return InvalidArgument("the KV pool is not in the memory of the backend '", backend.name(), "'");
  if (const absl::Status experts = CheckExperts(store.description(), spec); !experts.ok()) {
    return DataLoss(store.path(), ": ", experts.message());
  }
  const InputForms expert_inputs = ExpertInputs(store.description());
  if (!options.expert_inputs.Cover(expert_inputs)) {
    return InvalidArgument("expert_inputs leave out a form that the experts of ", store.path(), " read");
  }
  if (processor != nullptr && (!LetsProcessorCompute(spec) || memory.unified())) {
    return InvalidArgument("no experts of this model can be computed beside the backend '", backend.name(), "'");
  }
  if (options.stored_embedding) MOED_RETURN_IF_ERROR(CheckStoredEmbedding(spec, rows));
  MOED_ASSIGN_OR_RETURN(Weights weights, LoadWeights(store, spec, backend, trunk, options.stored_embedding ? rows : nullptr));
  MOED_ASSIGN_OR_RETURN(OwnScratch scratch, AllocateScratch(spec, options, backend.threads(), memory));
  if (spec.encoder) MOED_RETURN_IF_ERROR(FillPositionBiases(store, spec, backend, scratch.scratch));
  return std::make_unique<Decoder>(OfContext(spec, options.max_context), options, std::move(weights),
                                   ExpertFormats(store.description()), expert_inputs, std::move(scratch), backend, kv, trace,
                                   processor);
}

}  // namespace moed
