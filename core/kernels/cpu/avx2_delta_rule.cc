// The gated delta rule in 256-bit vectors.
#include "core/kernels/cpu/avx2.h"
#include "core/kernels/cpu/delta_rule.h"
#include "core/kernels/cpu/lanes256.h"

namespace moed::avx2 {

void DeltaRule(const DeltaRuleArguments& a) { DeltaRuleOf<Lanes256>(a); }

}  // namespace moed::avx2
