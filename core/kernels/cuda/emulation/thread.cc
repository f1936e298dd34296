#include "core/kernels/cuda/emulation/thread.h"

namespace moed {
inline namespace emulated {

constinit thread_local uint3 threadIdx = {};
constinit thread_local uint3 blockIdx = {};
constinit thread_local Dimensions blockDim = {};
constinit thread_local Dimensions gridDim = {};

}  // namespace emulated

namespace emulation {

constinit thread_local Running running = {};

}  // namespace emulation
}  // namespace moed
