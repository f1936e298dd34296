// What the kernels of convolutions and recurrent states are told of shapes and runs.
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels/backend.h"
#include "core/kernels/cuda_operations.h"
#include "core/kernels/descriptions.h"

namespace moed::cuda {

ConvolveOperation ConvolutionOf(const ConvolutionShape& shape, std::span<const StateRun> runs, const float* x,
                                const float* weights, float* y, Descriptions& descriptions);
StateOperation StatesOf(const DeltaRuleShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                        const float* rate, float* output, Descriptions& descriptions);
StateOperation StatesOf(const StateSpaceShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                        const float* steps, const float* skip, float* output, Descriptions& descriptions);

}  // namespace moed::cuda
