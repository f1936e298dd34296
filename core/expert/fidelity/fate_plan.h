// Fate, arXiv 2502.12224, 4.4 and 4.5: what is measured offline for one model, as options or from a file of moed-plan fate.
//   {"model_hash": "<16 hexadecimal digits>", "prefill_low": <p, 0 to 1>, "shallow_layers": <L, MoE layers>}
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/expert/part_options.h"

namespace moed {

struct FatePlan {
  double prefill_low = 0;  // p: option fate-prefill-low
  int shallow_layers = 0;  // L: option fate-shallow-layers
};

// INVALID_ARGUMENT names the file: unreadable, no such JSON, of another model, a number out of range.
absl::StatusOr<FatePlan> ReadFatePlan(const std::string& path, uint64_t model_hash, int layers);
absl::StatusOr<std::any> ReadFatePlanFile(const std::string& path, const StoreReader& store);

inline constexpr OptionRow kFatePlanOption{
    .name = "fate-plan",
    .help = "file of moed-plan fate: fate-prefill-low and fate-shallow-layers, where they are not given",
    .source = "Fate, arXiv 2502.12224, 4.4 and 4.5",
    .read = ReadFatePlanFile};
inline constexpr OptionRow kFatePrefillLow{
    "fate-prefill-low",
    "p: share of a layer's chosen experts, the least popular ones, that a prompt takes at the low precision",
    "0.25",
    0,
    1,
    "",
    "Fate, arXiv 2502.12224, 4.5"};
// The paper's boundary for Qwen1.5-MoE.
inline constexpr OptionRow kFateShallowLayers = Whole(
    {"fate-shallow-layers", "first MoE layers that are kept whole", "3", 0, 1 << 16, "layers", "Fate, arXiv 2502.12224, 4.4"});

// What was given, else what the file says, else the default.
absl::StatusOr<double> FatePrefillLow(const PartOptions& options);
absl::StatusOr<int> FateShallowLayers(const PartOptions& options);

}  // namespace moed
