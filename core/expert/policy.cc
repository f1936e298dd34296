#include "core/expert/policy.h"

#include "core/expert/named_rows.h"
#include "core/expert/policy_learned.h"
#include "core/expert/policy_lfu.h"
#include "core/expert/policy_lru.h"

namespace moed {
namespace {

constexpr PolicyRow kPolicies[] = {
    {"lru", "evicts the least recently used expert", MakeLruPolicy},
    {"lfu", "evicts the expert that the live sequences used least often", MakeLfuPolicy},
    {"learned", "evicts the expert whose next use is expected last, by a model learned while serving", MakeLearnedPolicy},
};

}  // namespace

std::span<const PolicyRow> Policies() { return kPolicies; }

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakePolicy(std::string_view name, const PolicyContext& context) {
  MOED_ASSIGN_OR_RETURN(const PolicyRow* row, FindRow(Policies(), "policy", name));
  return row->make(context);
}

}  // namespace moed
