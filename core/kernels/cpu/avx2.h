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

// The rest of the kernel table; wider vectors bring nothing here, so the tables of other instruction sets hold these too.
void Prepare(const PrepareArguments& arguments);
void RmsNorm(const float* x, const float* weight, float eps, int cols, float* y);
void Rope(const RopeArguments& arguments);
void Attention(const HeadArguments& arguments);
void SwiGlu(const float* gate, const float* up, int64_t n, float* out);
void Softmax(float* x, int n);
void AddScaled(float* y, const float* x, float scale, int64_t n);
void Add(float* y, const float* x, int64_t n);

}  // namespace moed::avx2
