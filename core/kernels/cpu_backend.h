// One ComputeBackend over any kernel table: cuts operations into ranges for the executor.
#pragma once

#include <memory>
#include <string_view>

#include "core/kernels/backend.h"
#include "core/kernels/kernel_table.h"

namespace moed {

// `name` and `kernels` live as long as the program, the executor as long as the backend.
std::unique_ptr<ComputeBackend> MakeCpuBackend(std::string_view name, const KernelTable& kernels, Executor& executor);

}  // namespace moed
