// Products with packed matrices by the 256-bit dot product instruction.
#include <immintrin.h>

#include "core/kernels/cpu/avx2.h"
#include "core/kernels/cpu/unsigned_blocks.h"
#include "core/kernels/cpu/vectors256.h"

namespace moed {
namespace {

inline __m256i Dot256(__m256i sum, __m256i w, __m256i x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
using Isa = Vnni256<Dot256>;

}  // namespace

const KernelTable kAvxVnniKernels = avx2::Table({MatMulFor<UnsignedQ8<Isa>, 2, 4>, MatMulFor<Q4<Isa>, 2, 4>,
                                                 MatMulFor<Q2<Isa>, 2, 4>, MatMulFor<Q4A<Isa>, 2, 4>, MatMulFor<Q3<Isa>, 2, 4>});

}  // namespace moed
