// The table of all kernels of this compiler.
#pragma once

#include "core/kernels/device/attention_pieces.h"
#include "core/kernels/device/combine.h"
#include "core/kernels/device/elements.h"
#include "core/kernels/device/embed.h"
#include "core/kernels/device/halves.h"
#include "core/kernels/device/heads.h"
#include "core/kernels/device/norms.h"
#include "core/kernels/device/prepare.h"
#include "core/kernels/device/products.h"
#include "core/kernels/device/rope.h"
#include "core/kernels/device/route.h"
#include "core/kernels/device/states.h"
#include "core/kernels/device/store_rows.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr cuda::KernelSet kKernels = {
    .add = LaunchElements,
    .add_scaled = LaunchElements,
    .scale = LaunchElements,
    .multiply = LaunchElements,
    .sigmoid_gate = LaunchElements,
    .softplus_gate = LaunchElements,
    .activate = LaunchElements,
    .soft_cap = LaunchElements,
    .delta_gates = LaunchElements,
    .step_sizes = LaunchElements,
    .gather = LaunchElements,
    .combine = LaunchCombine,
    .convolve = LaunchElements,
    .rms_norm = LaunchRows<RmsNorm>,
    .layer_norm = LaunchRows<LayerNorm, kFewerRowThreads>,
    .softmax = LaunchRows<Softmax, kFewerRowThreads>,
    .route = LaunchRoute,
    .rope = LaunchRope,
    .prepare = LaunchPrepare,
    .activate_and_prepare = LaunchPrepare,
    .embed = LaunchEmbed,
    .products = LaunchProducts,
    .halve_weights = LaunchHalveWeights,
    .halve_input = LaunchHalveInput,
    .finish_products = LaunchElements,
    .store_rows = LaunchStoreRows,
    .heads = LaunchHeads,
    .attention = LaunchAttention,
    .states = LaunchStates,
};

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
