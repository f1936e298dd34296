// Settings of SwapMoE (arXiv 2308.15030) and of its ablations, and the object that its mask, predictor and policy share.
#pragma once

#include <any>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/swapmoe/experts.h"

namespace moed {

absl::StatusOr<std::any> ReadSlotsFile(const std::string& path, const StoreReader& store);

enum class SlotsFrom : uint8_t { kPlan, kEqual };
inline constexpr std::string_view kSlotsFromWords[] = {"planned", "equal"};             // by SlotsFrom
inline constexpr std::string_view kSwapMoeImportanceWords[] = {"magnitude", "tokens"};  // by SwapMoeScore
inline constexpr std::string_view kSwapMoeUpdatesWords[] = {"off", "on"};

inline constexpr OptionRow kSwapMoePlan{
    .name = "slots",
    .help = "file of moed-plan slots: slots of every layer and norms of the experts; none: equal slots, the store's norms",
    .source = "SwapMoE, arXiv 2308.15030, 3.4",
    .read = ReadSlotsFile};
inline constexpr OptionRow kSwapMoeSlots{.name = "swap-slots",
                                         .help = "planned: those of the file; equal: as many in every layer, whatever it says",
                                         .initial = "planned",
                                         .source = "SwapMoE, arXiv 2308.15030, 5.5",
                                         .words = kSlotsFromWords};
inline constexpr OptionRow kSwapMoeImportance{.name = "swap-importance",
                                              .help = "magnitude: of what an expert adds to its tokens; tokens: their number",
                                              .initial = "magnitude",
                                              .source = "SwapMoE, arXiv 2308.15030, 3.2 and 5.5",
                                              .words = kSwapMoeImportanceWords};
inline constexpr OptionRow kSwapMoeUpdates{.name = "swap-updates",
                                           .help = "off: the experts of the largest norms stay",
                                           .initial = "on",
                                           .source = "SwapMoE, arXiv 2308.15030, 3.3 and 5.1",
                                           .words = kSwapMoeUpdatesWords};
inline constexpr OptionRow kSwapMoeWindow =
    Whole({"swap-window", "tokens between two choices of the virtual experts, at first", "64", 1, 1 << 20, "tokens"});
inline constexpr OptionRow kSwapMoeGrowth{
    "swap-growth", "factor of the frequency from one trial to the next, until steps get slower; 1: no search", "2", 1, 16};
inline constexpr OptionRow kSwapMoeTolerance{"swap-tolerance", "share that a step may take longer before it counts as slower",
                                             "0.05", 0, 10};
inline constexpr OptionRow kSwapMoeLeastWindow =
    Whole({"swap-least-window", "no window gets shorter", "4", 1, 1 << 20, "tokens"});
inline constexpr OptionRow kSwapMoeJudgedSteps =
    Whole({"swap-judged-steps", "steps of answers that a trial is judged by, at least", "16", 1, 1 << 20, "steps"});
inline constexpr OptionRow kSwapMoeFade{"swap-fade", "what the importance of one window counts in the next", "0.5", 0, 1};

inline constexpr const OptionRow* kSwapMoeOptions[] = {
    &kSwapMoePlan,   &kSwapMoeSlots,     &kSwapMoeImportance,  &kSwapMoeUpdates,     &kSwapMoeWindow,
    &kSwapMoeGrowth, &kSwapMoeTolerance, &kSwapMoeLeastWindow, &kSwapMoeJudgedSteps, &kSwapMoeFade};
// What has no meaning where the set never changes.
inline constexpr const OptionRow* kSwapMoeUpdateOptions[] = {&kSwapMoeImportance, &kSwapMoeWindow,      &kSwapMoeGrowth,
                                                             &kSwapMoeTolerance,  &kSwapMoeLeastWindow, &kSwapMoeJudgedSteps,
                                                             &kSwapMoeFade};

// (MoE layers, experts): those of the file of slots, which a store without any may have, else the store's.
absl::StatusOr<std::vector<float>> SwapMoeNorms(const StoreReader& store, const PartOptions& options);
// INVALID_ARGUMENT: an option of changes of the set, which never changes.
absl::Status CheckSwapMoeOptions(const PartOptions& options);
// What its slots and the spare one take: those of the file of slots, or one for each layer.
uint64_t SwapMoeLeastRecords(int moe_layers, const PartOptions& options);
// FAILED_PRECONDITION, with what makes them, where there are none.
absl::Status CheckStoreHasNorms(const StoreReader& store, const PartOptions& options);

// The one of the parts that are made from `context`. INVALID_ARGUMENT: an option. RESOURCE_EXHAUSTED: a cache of less than one
// slot a layer and a spare one, a file of more slots than the cache holds.
absl::StatusOr<std::shared_ptr<SwapMoeExperts>> SharedSwapMoeExperts(const PartContext& context, const PartOptions& options);

}  // namespace moed
