#include "core/expert/presets/files.h"

#include <string>
#include <utility>

#include "core/base/status.h"

namespace moed {

absl::StatusOr<PresetFiles> ReadPresetFiles(const PartOptions& options, const StoreReader& store) {
  const StoreDescription& description = store.description();
  const auto layers = static_cast<int>(description.moe_layers.size());
  const int experts = description.experts_per_layer;
  PresetFiles files;
  if (const std::string path = options.Text(kPathOptions[0]); !path.empty()) {
    MOED_ASSIGN_OR_RETURN(files.paths, ActivationPaths::Read(path, store.model_hash(), layers, experts));
  }
  if (const std::string path = options.Text(kWidthsOptions[0]); !path.empty()) {
    const auto precisions = static_cast<int>(description.precisions.size());
    MOED_ASSIGN_OR_RETURN(ExpertWidths widths, ReadWidths(path, store.model_hash(), layers, experts, precisions));
    files.widths = std::make_shared<const ExpertWidths>(std::move(widths));
  }
  if (const std::string path = options.Text(kSlotsOptions[0]); !path.empty()) {
    MOED_ASSIGN_OR_RETURN(SlotsPlan slots, ReadSlotsPlan(path, store.model_hash(), layers, experts));
    files.slots = std::make_shared<const SlotsPlan>(std::move(slots));
  }
  if (const std::string path = options.Text(kFatePlanOptions[0]); !path.empty()) {
    MOED_ASSIGN_OR_RETURN(files.fate, ReadFatePlan(path, store.model_hash(), layers));
  }
  return files;
}

}  // namespace moed
