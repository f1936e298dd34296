// Layers with states in 256-bit vectors.
#include "core/kernels/cpu/avx2.h"
#include "core/kernels/cpu/lanes256.h"
#include "core/kernels/cpu/state_columns.h"

namespace moed::avx2 {

void DeltaRule(const StateArguments& a) { RunDeltaRule<Lanes256>(a); }
void StateSpace(const StateArguments& a) { RunStates<Lanes256, StateRule::kStateSpace>(a); }

}  // namespace moed::avx2
