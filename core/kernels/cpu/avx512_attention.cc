// Attention, also of latents, in 512-bit vectors.
#include "core/kernels/cpu/attention.h"
#include "core/kernels/cpu/avx512.h"
#include "core/kernels/cpu/lanes512.h"
#include "core/kernels/cpu/latent_attention.h"

namespace moed::avx512 {

void AttentionF32(const AttentionArguments& a) { Attention<Lanes512, float>(a); }
void AttentionF16(const AttentionArguments& a) { Attention<Lanes512, uint16_t>(a); }
void AttentionQ8(const AttentionArguments& a) { Attention<Lanes512, int8_t>(a); }

void AttendLatentF32(const LatentArguments& a) { AttendLatent<Lanes512, float>(a); }
void AttendLatentF16(const LatentArguments& a) { AttendLatent<Lanes512, uint16_t>(a); }
void AttendLatentQ8(const LatentArguments& a) { AttendLatent<Lanes512, int8_t>(a); }

}  // namespace moed::avx512
