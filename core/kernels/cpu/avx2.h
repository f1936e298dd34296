// Between the files compiled for AVX2 (with FMA and F16C): declarations only.
#pragma once

#include "core/kernels/kernel_table.h"

namespace moed::avx2 {

// Rows of packed matrices, see MatMulArguments.
void MatMulF32(const MatMulArguments& arguments, int begin, int end);
void MatMulF16(const MatMulArguments& arguments, int begin, int end);
void MatMulBF16(const MatMulArguments& arguments, int begin, int end);
void MatMulQ8(const MatMulArguments& arguments, int begin, int end);
void MatMulQ4(const MatMulArguments& arguments, int begin, int end);
void MatMulQ2(const MatMulArguments& arguments, int begin, int end);

}  // namespace moed::avx2
