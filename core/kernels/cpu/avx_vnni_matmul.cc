// Products with packed matrices by the 256-bit dot product instruction.
#include <immintrin.h>

#include "core/kernels/cpu/avx2.h"
#include "core/kernels/cpu/block_formats.h"
#include "core/kernels/cpu/vectors256.h"

namespace moed {
namespace {

inline __m256i Dot256(__m256i sum, __m256i w, __m256i x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
using Isa = Vnni256<Dot256>;

}  // namespace

const KernelTable kAvxVnniKernels = {
    .mat_mul = {avx2::MatMulF32, avx2::MatMulF16, avx2::MatMulBF16, MatMulFor<UnsignedQ8<Isa>, 2, 4>, MatMulFor<Q4<Isa>, 2, 4>,
                MatMulFor<Q2<Isa>, 2, 4>},
    .prepare = avx2::Prepare,
    .rms_norm = avx2::RmsNorm,
    .rope = avx2::Rope,
    .attention = avx2::Attention,
    .swi_glu = avx2::SwiGlu,
    .softmax = avx2::Softmax,
    .add_scaled = avx2::AddScaled,
    .add = avx2::Add,
};

}  // namespace moed
