// Between the files compiled for AVX-512: declarations only. What is not here the tables take from avx2.h.
#pragma once

#include "core/kernels/kernel_table.h"

namespace moed::avx512 {

void AttentionF32(const AttentionArguments& arguments);
void AttentionF16(const AttentionArguments& arguments);
void AttentionQ8(const AttentionArguments& arguments);
void AttendLatentF32(const LatentArguments& arguments);
void AttendLatentF16(const LatentArguments& arguments);
void AttendLatentQ8(const LatentArguments& arguments);

}  // namespace moed::avx512
