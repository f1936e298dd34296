// What the tables of 64-bit ARM ask of the processor.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "core/kernels/kernel_table.h"

namespace moed {

bool HasNeonDotprod() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool HasNeonI8mm() { return HasNeonDotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }

}  // namespace moed
