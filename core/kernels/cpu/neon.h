// Between the files for 64-bit ARM: declarations only.
#pragma once

#include "core/kernels/kernel_table.h"

namespace moed::neon {

// Rows of packed matrices, see MatMulArguments. These need nothing beyond the base architecture.
void MatMulF32(const MatMulArguments& arguments, int begin, int end);
void MatMulF16(const MatMulArguments& arguments, int begin, int end);
void MatMulBF16(const MatMulArguments& arguments, int begin, int end);

// Dot products of four bytes (SDOT).
void DotprodQ8(const MatMulArguments& arguments, int begin, int end);
void DotprodQ4(const MatMulArguments& arguments, int begin, int end);
void DotprodQ2(const MatMulArguments& arguments, int begin, int end);
void DotprodQ4A(const MatMulArguments& arguments, int begin, int end);
void DotprodQ3(const MatMulArguments& arguments, int begin, int end);

// Products of 2 x 8 with 8 x 2 bytes (SMMLA), where there are tokens enough; else SDOT.
void I8mmQ8(const MatMulArguments& arguments, int begin, int end);
void I8mmQ4(const MatMulArguments& arguments, int begin, int end);
void I8mmQ2(const MatMulArguments& arguments, int begin, int end);
void I8mmQ4A(const MatMulArguments& arguments, int begin, int end);
void I8mmQ3(const MatMulArguments& arguments, int begin, int end);

// Everything but the products.
void Prepare(const PrepareArguments& arguments);
void RmsNorm(const float* x, const float* weight, float eps, int cols, float* y);
void Rope(const RopeArguments& arguments);
void AttentionF32(const HeadArguments& arguments);
void AttentionF16(const HeadArguments& arguments);
void AttentionQ8(const HeadArguments& arguments);
void SwiGlu(const float* gate, const float* up, int64_t n, float* out);
void Softmax(float* x, int n);
void AddScaled(float* y, const float* x, float scale, int64_t n);
void Add(float* y, const float* x, int64_t n);

}  // namespace moed::neon
