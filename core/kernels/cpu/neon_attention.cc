// Attention, also of latents, in NEON vectors.
#include "core/kernels/cpu/attention.h"
#include "core/kernels/cpu/lanes_neon.h"
#include "core/kernels/cpu/latent_attention.h"
#include "core/kernels/cpu/neon.h"

namespace moed::neon {

void AttentionF32(const AttentionArguments& a) { Attention<LanesNeon, float>(a); }
void AttentionF16(const AttentionArguments& a) { Attention<LanesNeon, uint16_t>(a); }
void AttentionQ8(const AttentionArguments& a) { Attention<LanesNeon, int8_t>(a); }

void AttendLatentF32(const LatentArguments& a) { AttendLatent<LanesNeon, float>(a); }
void AttendLatentF16(const LatentArguments& a) { AttendLatent<LanesNeon, uint16_t>(a); }
void AttendLatentQ8(const LatentArguments& a) { AttendLatent<LanesNeon, int8_t>(a); }

void StoreKvRowF32(const float* numbers, int head_dim, void* row) { StoreKvRow(KvFormat::kF32, numbers, head_dim, row); }
void StoreKvRowQ8(const float* numbers, int head_dim, void* row) { StoreKvRow(KvFormat::kQ8, numbers, head_dim, row); }
void StoreKvRowF16(const float* numbers, int head_dim, void* row) {
  StoreHalves<LanesNeon>(numbers, head_dim, static_cast<uint16_t*>(row));
}

}  // namespace moed::neon
