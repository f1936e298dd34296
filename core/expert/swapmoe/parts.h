// The presets of SwapMoE (arXiv 2308.15030) and of its ablations: a mask, a predictor and a policy around one SwapMoeExperts.
#pragma once

#include <memory>

#include "core/expert/presets/preset.h"
#include "core/expert/swapmoe/experts.h"

namespace moed {

inline constexpr OptionRow kSwapMoeOptions[] = {
    kSlotsOptions[0],
    {"swap-window", "tokens between two choices of the virtual experts, at first", "64", 1, 1 << 20},
    {"swap-growth", "factor of the frequency from one trial to the next, until steps get slower; 1: no search", "2", 1, 16},
    {"swap-tolerance", "share that a step may take longer before it counts as slower", "0.05", 0, 10},
    {"swap-least-window", "tokens: no window gets shorter", "4", 1, 1 << 20},
    {"swap-judged-steps", "steps of answers that a trial is judged by, at least", "16", 1, 1 << 20},
    {"swap-fade", "what the importance of one window counts in the next", "0.5", 0, 1},
};
// Where the set never changes.
inline constexpr OptionRow kSwapMoePruningOptions[] = {kSlotsOptions[0]};

// For PresetRow::make. INVALID_ARGUMENT: an option, the file. RESOURCE_EXHAUSTED: a cache of less than one slot a layer and a
// spare one, a file of more slots than the cache holds.
absl::StatusOr<PresetParts> MakeSwapMoe(const PresetSetup& setup, const PresetContext& context);
absl::StatusOr<PresetParts> MakeSwapMoeEqual(const PresetSetup& setup, const PresetContext& context);
absl::StatusOr<PresetParts> MakeSwapMoeTokens(const PresetSetup& setup, const PresetContext& context);
absl::StatusOr<PresetParts> MakeSwapMoePruning(const PresetSetup& setup, const PresetContext& context);

// Without a rule.
PresetParts MakeSwapParts(const ExpertModelShape& model, std::shared_ptr<SwapMoeExperts> experts);

}  // namespace moed
