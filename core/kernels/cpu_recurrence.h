// Layers with a state on processors: cuts the operations into calls of a kernel table. See ComputeBackend for the contracts.
#pragma once

#include <span>

#include "core/base/executor.h"
#include "core/kernels/kernel_table.h"
#include "core/kernels/recurrence.h"

namespace moed {

void ConvolveOnCpu(const KernelTable& kernels, Executor& executor, const ConvolutionShape& shape, std::span<const StateRun> runs,
                   const float* x, const float* weights, float* y);
void DeltaRuleOnCpu(const KernelTable& kernels, Executor& executor, const DeltaRuleShape& shape, std::span<const StateRun> runs,
                    const float* x, const float* decay, const float* rate, float* output);
void StateSpaceOnCpu(const KernelTable& kernels, Executor& executor, const StateSpaceShape& shape, std::span<const StateRun> runs,
                     const float* x, const float* decay, const float* steps, const float* skip, float* output);

}  // namespace moed
