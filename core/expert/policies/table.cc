#include "core/expert/policies/table.h"

#include "core/base/status.h"
#include "core/expert/learning/paths_option.h"
#include "core/expert/named_rows.h"
#include "core/expert/policies/arc.h"
#include "core/expert/policies/edgemoe.h"
#include "core/expert/policies/fate.h"
#include "core/expert/policies/hobbit.h"
#include "core/expert/policies/learned.h"
#include "core/expert/policies/lfu.h"
#include "core/expert/policies/lru.h"
#include "core/expert/policies/random.h"
#include "core/expert/policies/s3_fifo.h"
#include "core/expert/policies/swapmoe.h"
#include "core/expert/swapmoe/options.h"

namespace moed {
namespace {

// Of policies without options.
template <std::unique_ptr<EvictionPolicy> (*kMake)(const ExpertModelShape&)>
absl::StatusOr<std::unique_ptr<EvictionPolicy>> Plain(const PartContext& context, const PartOptions&) {
  return kMake(context.model);
}

constexpr PolicyRow kPolicies[] = {
    {.name = "lru", .description = "evicts the least recently used expert", .make = Plain<MakeLruPolicy>},
    {.name = "lfu",
     .description = "evicts the expert that the live sequences used least often",
     .make = Plain<MakeLfuPolicy>,
     .memory = LfuPolicyMemory},
    {.name = "fifo", .description = "evicts the expert that entered first", .make = Plain<MakeFifoPolicy>},
    {.name = "random", .description = "evicts any expert", .make = Plain<MakeRandomPolicy>},
    {.name = "edgemoe",
     .description = "evicts the expert of fewest uses over the distance to its layer",
     .source = "EdgeMoE, arXiv 2308.14352, III-C2, by its prose",
     .options = kPathsOptions,
     .make = MakeEdgeMoePolicy},
    {.name = "edgemoe-printed",
     .description = "edgemoe with the distance since its layer ran",
     .source = "EdgeMoE, arXiv 2308.14352, III-C2, as its formula is printed",
     .options = kPathsOptions,
     .make = MakeEdgeMoePrintedPolicy},
    {.name = "hobbit",
     .description = "evicts by recency, frequency, high-precision frequency and layer distance; a cache for each precision",
     .source = "HOBBIT, arXiv 2411.01433, 3.4, equation 3",
     .options = kHobbitPolicyOptions,
     .check_options = CheckHobbitPolicyOptions,
     .make = MakeHobbitPolicy,
     .memory = HobbitPolicyMemory},
    {.name = "arc",
     .description = "adapts between the least recently and the least often used expert",
     .source = "Megiddo and Modha, FAST 2003, figure 4",
     .make = Plain<MakeArcPolicy>},
    {.name = "fate",
     .description = "keeps the first layers whole, equal parts of the others, arc inside a layer",
     .source = "Fate, arXiv 2502.12224, 4.4",
     .options = kFatePolicyOptions,
     .make = MakeFatePolicy},
    {.name = "s3-fifo",
     .description = "evicts what was not used again while it was in a small first-in-first-out queue",
     .source = "Yang et al., SOSP 2023, algorithm 1",
     .make = Plain<MakeS3FifoPolicy>},
    {.name = "swapmoe",
     .description = "evicts what is no virtual expert of its layer",
     .source = "SwapMoE, arXiv 2308.15030, 3.3",
     .options = kSwapMoeOptions,
     .make = MakeSwapMoePolicy,
     .mask = "swapmoe"},
    {.name = "learned",
     .description = "evicts the expert whose next use is expected last, by a model learned while serving",
     .source = "ours",
     .make = Plain<MakeLearnedPolicy>,
     .memory = LearnedPolicyMemory},
};

}  // namespace

std::span<const PolicyRow> Policies() { return kPolicies; }

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakePolicy(std::string_view name, const PartContext& context,
                                                           const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const PolicyRow* row, FindRow(Policies(), "policy", name));
  return row->make(context, options);
}

}  // namespace moed
