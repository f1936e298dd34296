// Keys, values and attention on processors: cuts the operations into calls of a kernel table. See ComputeBackend for the
// contracts.
#pragma once

#include <span>

#include "core/base/executor.h"
#include "core/kernels/backend.h"
#include "core/kernels/kernel_table.h"

namespace moed {

void StoreKvOnCpu(const KernelTable& kernels, Executor& executor, const AttentionShape& shape, std::span<const KvRun> runs,
                  const float* keys, const float* values);
void AttentionOnCpu(const KernelTable& kernels, Executor& executor, const AttentionShape& shape, std::span<const KvRun> runs,
                    const float* query, float* output, std::span<float> scores);
void StoreLatentOnCpu(const KernelTable& kernels, Executor& executor, const LatentShape& shape, std::span<const KvRun> runs,
                      const float* latents, const float* rotated);
void AttendLatentOnCpu(const KernelTable& kernels, Executor& executor, const LatentShape& shape, std::span<const KvRun> runs,
                       const float* query, const float* rotated, int64_t rotated_stride, float* output, std::span<float> scores);

}  // namespace moed
