// Products with packed matrices in 512-bit vectors.
#include <immintrin.h>

#include "core/kernels/cpu/avx2.h"
#include "core/kernels/cpu/avx512.h"
#include "core/kernels/cpu/vector_formats.h"
#include "core/kernels/cpu/vectors256.h"
#include "core/kernels/cpu/vectors512.h"
#include "core/kernels/products.h"

namespace moed {
namespace {

inline __m256i Dot256(__m256i sum, __m256i w, __m256i x) { return _mm256_dpbusd_epi32(sum, w, x); }
using OnePanel = Vnni256<Dot256>;

struct Avx512Vnni {
  template <FormatId kFormat>
  static void MatMul(const MatMulArguments& a, int begin, int end) {
    MatMulFor<VectorFormat<kFormat, Vnni512>, 2, 6, VectorFormat<kFormat, OnePanel>>(a, begin, end);
  }
};

}  // namespace

const KernelTable kAvx512VnniKernels =
    avx2::Table(kProducts<Avx512Vnni>, {avx512::AttentionF32, avx512::AttentionF16, avx512::AttentionQ8, avx512::AttendLatentF32,
                                        avx512::AttendLatentF16, avx512::AttendLatentQ8});

}  // namespace moed
