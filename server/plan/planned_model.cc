#include "server/plan/planned_model.h"

#include <algorithm>
#include <utility>

#include "core/base/status.h"
#include "core/serving/packed_model.h"

namespace moed {

absl::StatusOr<PlannedModel> OpenPlannedModel(const std::string& path) {
  MOED_ASSIGN_OR_RETURN(PackedModel packed, OpenPackedModel(path));
  const StoreReader& store = *packed.store;
  MOED_ASSIGN_OR_RETURN(const PresetSetup preset, ChoosePreset(PresetChoice{}, store));
  PlannedModel model{.path = path, .packed = true, .weights = path};
  model.store = store.description();
  model.spec = std::move(packed.spec);
  model.tokenizer_bytes = packed.tokenizer->memory_bytes();
  model.chat_template_bytes = packed.chat.chat_template.size();
  model.preset = NeedsOfPreset(preset, model.store, model.spec);
  const uint64_t record = store.largest_stored_bytes(kReferencePrecision), first = store.layout().records_offset();
  const uint64_t all = std::min(store.all_expert_bytes(), store.file_bytes() - first);
  model.records = {first, all / record, record};
  return model;
}

ServingInputs PlannedModel::Inputs(uint64_t budget, const ServingOptions& options) const {
  return {.budget = budget,
          .options = options,
          .store = store,
          .spec = spec,
          .tokenizer_bytes = tokenizer_bytes,
          .chat_template_bytes = chat_template_bytes,
          .preset = preset};
}

}  // namespace moed
