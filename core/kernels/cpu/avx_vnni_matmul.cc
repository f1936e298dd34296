// Products with packed matrices by the 256-bit dot product instruction.
#include <immintrin.h>

#include "core/kernels/cpu/avx2.h"
#include "core/kernels/cpu/vector_formats.h"
#include "core/kernels/cpu/vectors256.h"
#include "core/kernels/products.h"

namespace moed {
namespace {

inline __m256i Dot256(__m256i sum, __m256i w, __m256i x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }
struct AvxVnni {
  template <FormatId kFormat>
  static void MatMul(const MatMulArguments& a, int begin, int end) {
    MatMulFor<VectorFormat<kFormat, Vnni256<Dot256>>, 2, 4>(a, begin, end);
  }
};

}  // namespace

const KernelTable kAvxVnniKernels = avx2::Table(kProducts<AvxVnni>);

}  // namespace moed
