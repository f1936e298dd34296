// What the kernels of products are told of jobs.
#pragma once

#include <span>

#include "absl/functional/function_ref.h"
#include "core/kernels/backend.h"
#include "core/kernels/cuda_choices.h"
#include "core/kernels/cuda_operations.h"
#include "core/kernels/descriptions.h"
#include "core/kernels/half_storage.h"

namespace moed::cuda {

// One launch for the jobs of a format with one token, one for those with a few, one for the rest; of those that `among` names.
void LaunchProducts(std::span<const MatMulJob> jobs, absl::FunctionRef<bool(const MatMulJob&)> among, Descriptions& descriptions,
                    ExpertChoices& choices, absl::FunctionRef<void(const ProductsOperation&)> launch);

// Of a job in 16 bits, whose `slab` is the matrix's rows from `first` on.
HalveInputOperation HalveInputOf(const MatMulJob& job, const HalfStorage& storage);
HalveWeightsOperation HalveWeightsOf(const MatrixView& slab, const HalfStorage& storage);
FinishProductsOperation FinishProductsOf(const MatMulJob& job, const MatrixView& slab, int first, const HalfStorage& storage);

}  // namespace moed::cuda
