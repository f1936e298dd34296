// What the files hold that a preset's options name. Each is read once, when the preset is chosen, and checked against the store.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "core/expert/fidelity/fate_plan.h"
#include "core/expert/fidelity/widths.h"
#include "core/expert/learning/activation_paths.h"
#include "core/expert/part_options.h"
#include "core/expert/swapmoe/slots.h"
#include "core/store/store.h"

namespace moed {

inline constexpr OptionRow kPathOptions[] = {
    {"paths", "file of activation paths made offline for this model; none: learned while serving", ""}};
inline constexpr OptionRow kFatePlanOptions[] = {
    {"fate-plan", "file of moed-plan fate: fate-prefill-low and fate-shallow-layers, where they are not given", ""}};
inline constexpr OptionRow kSlotsOptions[] = {
    {"slots", "file of moed-plan slots: slots of every layer and norms of the experts; none: equal slots, the store's norms",
     ""}};

// Null where no option names a file.
struct PresetFiles {
  std::shared_ptr<const ActivationPaths> paths;
  std::shared_ptr<const ExpertWidths> widths;
  std::shared_ptr<const SlotsPlan> slots;
  std::optional<FatePlan> fate;
};
// Errors name option and file.
absl::StatusOr<PresetFiles> ReadPresetFiles(const PartOptions& options, const StoreReader& store);

}  // namespace moed
