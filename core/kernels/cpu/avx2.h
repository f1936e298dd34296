// Between the files compiled for AVX2 (with FMA and F16C): declarations, and what is gone when they are compiled.
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
void MatMulQ4A(const MatMulArguments& arguments, int begin, int end);
void MatMulQ3(const MatMulArguments& arguments, int begin, int end);

// The rest of the kernel table; wider vectors bring nothing here, so the tables of other instruction sets hold these too.
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

namespace {

using MatMulFunction = void (*)(const MatMulArguments& arguments, int begin, int end);

// Of the block formats.
struct BlockProducts {
  MatMulFunction q8, q4, q2, q4a, q3;
};

// The table of an instruction set that multiplies block formats its own way.
consteval KernelTable Table(const BlockProducts& blocks) {
  return {
      .mat_mul = {MatMulF32, MatMulF16, MatMulBF16, blocks.q8, blocks.q4, blocks.q2, blocks.q4a, blocks.q3},
      .prepare = Prepare,
      .rms_norm = RmsNorm,
      .rope = Rope,
      .attention = {AttentionF32, AttentionF16, AttentionQ8},
      .swi_glu = SwiGlu,
      .softmax = Softmax,
      .add_scaled = AddScaled,
      .add = Add,
  };
}

}  // namespace
}  // namespace moed::avx2
