// Products on a CPU: the panels of all jobs over the executor, and what their jobs make of the sums.
#pragma once

#include <span>

#include "core/base/executor.h"
#include "core/kernels/backend.h"
#include "core/kernels/kernel_table.h"

namespace moed {

void MatMulOnCpu(const KernelTable& kernels, Executor& executor, std::span<const MatMulJob> jobs);

}  // namespace moed
