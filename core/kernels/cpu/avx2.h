// Between the files compiled for AVX2 (with FMA and F16C): declarations, and what is gone once they are compiled.
#pragma once

#include "core/kernels/kernel_table.h"

namespace moed::avx2 {

// All of a kernel table but the products; wider vectors bring nothing to most of it, so the tables of other instruction sets hold
// it too.
void Prepare(const PrepareArguments& arguments);
void RmsNorm(const float* x, const float* weight, float eps, int cols, float* y);
void Rope(const RopeArguments& arguments);
void AttentionF32(const AttentionArguments& arguments);
void AttentionF16(const AttentionArguments& arguments);
void AttentionQ8(const AttentionArguments& arguments);
void AttendLatentF32(const LatentArguments& arguments);
void AttendLatentF16(const LatentArguments& arguments);
void AttendLatentQ8(const LatentArguments& arguments);
void StoreKvRowF32(const float* numbers, int head_dim, void* row);
void StoreKvRowF16(const float* numbers, int head_dim, void* row);
void StoreKvRowQ8(const float* numbers, int head_dim, void* row);
void DeltaRule(const StateArguments& arguments);
void StateSpace(const StateArguments& arguments);
void SigmoidGate(float* x, const float* gate, int64_t n);
void SwiGlu(const float* gate, const float* up, int64_t n, float* out);
void ClampedSwiGlu(const SwiGluClamp& clamp, const float* gate, const float* up, int64_t n, float* out);
void GeGlu(const float* gate, const float* up, int64_t n, float* out);
void SquaredRelu(float* x, int64_t n);
void SoftCap(float* x, float cap, int64_t n);
void Softmax(float* x, int n);
void AddScaled(float* y, const float* x, float scale, int64_t n);
void Add(float* y, const float* x, int64_t n);

namespace {

struct AttentionKernels {
  void (*f32)(const AttentionArguments& arguments) = AttentionF32;
  void (*f16)(const AttentionArguments& arguments) = AttentionF16;
  void (*q8)(const AttentionArguments& arguments) = AttentionQ8;
  void (*latent_f32)(const LatentArguments& arguments) = AttendLatentF32;
  void (*latent_f16)(const LatentArguments& arguments) = AttendLatentF16;
  void (*latent_q8)(const LatentArguments& arguments) = AttendLatentQ8;
};

// The table of an instruction set that multiplies its own way, and perhaps attends its own way.
consteval KernelTable Table(const Products& products, const AttentionKernels& attention = {}) {
  return {
      .mat_mul = products,
      .prepare = Prepare,
      .rms_norm = RmsNorm,
      .rope = Rope,
      .attention = {attention.f32, attention.f16, attention.q8},
      .attend_latent = {attention.latent_f32, attention.latent_f16, attention.latent_q8},
      .store_kv_row = {StoreKvRowF32, StoreKvRowF16, StoreKvRowQ8},
      .delta_rule = DeltaRule,
      .state_space = StateSpace,
      .sigmoid_gate = SigmoidGate,
      .swi_glu = SwiGlu,
      .clamped_swi_glu = ClampedSwiGlu,
      .ge_glu = GeGlu,
      .squared_relu = SquaredRelu,
      .soft_cap = SoftCap,
      .softmax = Softmax,
      .add_scaled = AddScaled,
      .add = Add,
  };
}

}  // namespace
}  // namespace moed::avx2
