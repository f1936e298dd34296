#include "tools/plan/planner.h"

#include "tools/plan/all_planner.h"
#include "tools/plan/dictionary_planner.h"
#include "tools/plan/fate_planner.h"
#include "tools/plan/hobbit_planner.h"
#include "tools/plan/learn_planner.h"
#include "tools/plan/moments_planner.h"
#include "tools/plan/swapmoe_planner.h"
#include "tools/plan/widths_planner.h"

namespace moed {
namespace {

constexpr PlannerRow kPlanners[] = {
    {"all", "make every plan of those below, for every preset that takes one", MakeAllPlanner},
    {"widths", "choose the precision of every expert under a tolerable loss (EdgeMoE)", MakeWidthsPlanner},
    {"dictionary", "count which experts follow which in a text (EdgeMoE)", MakeDictionaryPlanner},
    {"slots", "divide the memory for experts among the layers (SwapMoE)", MakeSlotsPlanner},
    {"fate", "measure what a prompt may read at low precision and how many layers to keep whole (Fate)", MakeFatePlanner},
    {"hobbit", "find thresholds and eviction weights for a model's own gate weights (HOBBIT)", MakeHobbitPlanner},
    {"moments", "collect from a text what moed-pack --calibration weighs errors by", MakeMomentsPlanner},
    {"learn", "learn from a text what the preset auto learns while it serves", MakeLearnPlanner},
};

}  // namespace

std::span<const PlannerRow> Planners() { return kPlanners; }

}  // namespace moed
