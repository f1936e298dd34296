#include "server/plan/planned_model.h"

#include <utility>

#include "core/base/status.h"
#include "core/store/store.h"
#include "core/tokenizer/chat_settings.h"
#include "core/tokenizer/tokenizer.h"

namespace moed {
absl::StatusOr<PlannedModel> OpenPlannedModel(const std::string& path) {
  PlannedModel model{.path = path, .packed = true, .weights = path};
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<StoreReader> store, StoreReader::Open(path));
  MOED_ASSIGN_OR_RETURN(model.spec, SpecFromJson(store->description().model_spec));
  std::string blob = store->TakeTokenizer();
  MOED_ASSIGN_OR_RETURN(const ChatSettings chat, ChatSettingsOf(blob));
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::FromBlob(std::move(blob)));
  MOED_ASSIGN_OR_RETURN(const PresetSetup preset, ChoosePreset(PresetChoice{}, *store));
  model.store = store->description();
  model.tokenizer_bytes = tokenizer->memory_bytes();
  model.chat_template_bytes = chat.chat_template.size();
  model.preset = NeedsOfPreset(preset, model.store, model.spec);
  const uint64_t record = store->largest_expert_bytes(kReferencePrecision);
  model.records = {store->layout().records_offset(), store->all_expert_bytes() / record, record};
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
