// The tables of 64-bit ARM and what they ask of the processor.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "core/kernels/cpu/neon.h"

namespace moed {

bool HasNeonDotprod() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool HasNeonI8mm() { return HasNeonDotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }

namespace {

constexpr KernelTable Table(void (*q8)(const MatMulArguments&, int, int), void (*q4)(const MatMulArguments&, int, int),
                            void (*q2)(const MatMulArguments&, int, int)) {
  return {
      .mat_mul = {neon::MatMulF32, neon::MatMulF16, neon::MatMulBF16, q8, q4, q2},
      .prepare = neon::Prepare,
      .rms_norm = neon::RmsNorm,
      .rope = neon::Rope,
      .attention = neon::Attention,
      .swi_glu = neon::SwiGlu,
      .softmax = neon::Softmax,
      .add_scaled = neon::AddScaled,
      .add = neon::Add,
  };
}

}  // namespace

const KernelTable kNeonDotprodKernels = Table(neon::DotprodQ8, neon::DotprodQ4, neon::DotprodQ2);
const KernelTable kNeonI8mmKernels = Table(neon::I8mmQ8, neon::I8mmQ4, neon::I8mmQ2);

}  // namespace moed
