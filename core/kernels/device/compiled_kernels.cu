// The kernels for devices: compiled by nvcc for each of their architectures.
#include "core/kernels/device/launchers.h"

namespace moed::cuda {

const KernelSet kCompiledKernels = kKernels;

std::span<const Kernel> KernelsToLoad() { return ListedKernels(); }

}  // namespace moed::cuda
