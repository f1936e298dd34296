// Between the files compiled for AVX2 (with FMA and F16C): declarations, and what is gone once they are compiled.
#pragma once

#include "core/kernels/kernel_table.h"

namespace moed::avx2 {

// All of a kernel table but the products; wider vectors bring nothing here, so the tables of other instruction sets hold these
// too.
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

// The table of an instruction set that multiplies its own way.
consteval KernelTable Table(const Products& products) {
  return {
      .mat_mul = products,
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
