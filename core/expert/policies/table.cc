#include "core/expert/named_rows.h"
#include "core/expert/policies/arc.h"
#include "core/expert/policies/edgemoe.h"
#include "core/expert/policies/eviction_policy.h"
#include "core/expert/policies/fate.h"
#include "core/expert/policies/hobbit.h"
#include "core/expert/policies/learned.h"
#include "core/expert/policies/lfu.h"
#include "core/expert/policies/lru.h"
#include "core/expert/policies/random.h"
#include "core/expert/policies/s3_fifo.h"

namespace moed {
namespace {

constexpr PolicyRow kPolicies[] = {
    {"lru", "evicts the least recently used expert", MakeLruPolicy},
    {"lfu", "evicts the expert that the live sequences used least often", MakeLfuPolicy},
    {"fifo", "evicts the expert that entered first", MakeFifoPolicy},
    {"random", "evicts any expert", MakeRandomPolicy},
    // EdgeMoE, III-C2: the eviction score by its prose, and as printed.
    {"edgemoe", "evicts the expert of fewest uses over the distance to its layer", MakeEdgeMoePolicy},
    {"edgemoe-printed", "edgemoe with the distance since its layer ran", MakeEdgeMoePrintedPolicy},
    // HOBBIT, 3.4, equation 3.
    {"hobbit", "evicts by recency, frequency, high-precision frequency and layer distance; a cache for each precision",
     MakeHobbitPolicy},
    // Megiddo and Modha, FAST 2003, figure 4.
    {"arc", "adapts between the least recently and the least often used expert", MakeArcPolicy},
    // Fate, 4.4.
    {"fate", "keeps the first layers whole, equal parts of the others, arc inside a layer", MakeFatePolicy},
    // Yang et al., SOSP 2023, algorithm 1.
    {"s3-fifo", "evicts what was not used again while it was in a small first-in-first-out queue", MakeS3FifoPolicy},
    {"learned", "evicts the expert whose next use is expected last, by a model learned while serving", MakeLearnedPolicy},
};

}  // namespace

std::span<const PolicyRow> Policies() { return kPolicies; }

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakePolicy(std::string_view name, const ExpertModelShape& context) {
  MOED_ASSIGN_OR_RETURN(const PolicyRow* row, FindRow(Policies(), "policy", name));
  return row->make(context);
}

}  // namespace moed
