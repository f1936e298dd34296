// Attention, also of latents, in 256-bit vectors.
#include "core/kernels/cpu/attention.h"
#include "core/kernels/cpu/avx2.h"
#include "core/kernels/cpu/lanes256.h"
#include "core/kernels/cpu/latent_attention.h"

namespace moed::avx2 {

void AttentionF32(const AttentionArguments& a) { Attention<Lanes256, float>(a); }
void AttentionF16(const AttentionArguments& a) { Attention<Lanes256, uint16_t>(a); }
void AttentionQ8(const AttentionArguments& a) { Attention<Lanes256, int8_t>(a); }

void AttendLatentF32(const LatentArguments& a) { AttendLatent<Lanes256, float>(a); }
void AttendLatentF16(const LatentArguments& a) { AttendLatent<Lanes256, uint16_t>(a); }
void AttendLatentQ8(const LatentArguments& a) { AttendLatent<Lanes256, int8_t>(a); }

void StoreKvRowF32(const float* numbers, int head_dim, void* row) { StoreKvRow(KvFormat::kF32, numbers, head_dim, row); }
void StoreKvRowQ8(const float* numbers, int head_dim, void* row) { StoreKvRow(KvFormat::kQ8, numbers, head_dim, row); }
void StoreKvRowF16(const float* numbers, int head_dim, void* row) {
  StoreHalves<Lanes256>(numbers, head_dim, static_cast<uint16_t*>(row));
}

}  // namespace moed::avx2
