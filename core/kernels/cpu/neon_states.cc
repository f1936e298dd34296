// Layers with states in NEON vectors.
#include "core/kernels/cpu/lanes_neon.h"
#include "core/kernels/cpu/neon.h"
#include "core/kernels/cpu/state_columns.h"

namespace moed::neon {

void DeltaRule(const StateArguments& a) { RunDeltaRule<LanesNeon>(a); }
void StateSpace(const StateArguments& a) { RunStates<LanesNeon, StateRule::kStateSpace>(a); }

}  // namespace moed::neon
