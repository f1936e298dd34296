// What the stand-in for a device has in place of a library for products of matrices.
#pragma once

#include "core/kernels/cuda/runtime.h"

namespace moed::emulation {

// At addresses of the host. The sums have an order that no kernel of ours has: from the last product to the first, in three
// parts.
void MultiplyHalves(const HalfProduct& product);

}  // namespace moed::emulation
