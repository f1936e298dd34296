// The tables of 64-bit ARM and what they ask of the processor.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "core/kernels/cpu/neon.h"

namespace moed {

bool HasNeonDotprod() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
bool HasNeonI8mm() { return HasNeonDotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }

namespace {

// Of the block formats.
struct BlockProducts {
  void (*q8)(const MatMulArguments&, int, int);
  void (*q4)(const MatMulArguments&, int, int);
  void (*q2)(const MatMulArguments&, int, int);
  void (*q4a)(const MatMulArguments&, int, int);
  void (*q3)(const MatMulArguments&, int, int);
};

constexpr KernelTable Table(const BlockProducts& blocks) {
  return {
      .mat_mul = {neon::MatMulF32, neon::MatMulF16, neon::MatMulBF16, blocks.q8, blocks.q4, blocks.q2, blocks.q4a, blocks.q3},
      .prepare = neon::Prepare,
      .rms_norm = neon::RmsNorm,
      .rope = neon::Rope,
      .attention = {neon::AttentionF32, neon::AttentionF16, neon::AttentionQ8},
      .swi_glu = neon::SwiGlu,
      .softmax = neon::Softmax,
      .add_scaled = neon::AddScaled,
      .add = neon::Add,
  };
}

}  // namespace

const KernelTable kNeonDotprodKernels =
    Table({neon::DotprodQ8, neon::DotprodQ4, neon::DotprodQ2, neon::DotprodQ4A, neon::DotprodQ3});
const KernelTable kNeonI8mmKernels = Table({neon::I8mmQ8, neon::I8mmQ4, neon::I8mmQ2, neon::I8mmQ4A, neon::I8mmQ3});

}  // namespace moed
