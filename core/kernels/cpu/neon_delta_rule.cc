// The gated delta rule in NEON vectors.
#include "core/kernels/cpu/delta_rule.h"
#include "core/kernels/cpu/lanes_neon.h"
#include "core/kernels/cpu/neon.h"

namespace moed::neon {

void DeltaRule(const DeltaRuleArguments& a) { DeltaRuleOf<LanesNeon>(a); }

}  // namespace moed::neon
