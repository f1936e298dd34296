// The kernels for the host, one thread after the other (emulation/): for tests.
#include "core/kernels/device/launchers.h"

namespace moed::cuda {

const KernelSet kEmulatedKernels = kKernels;

}  // namespace moed::cuda
