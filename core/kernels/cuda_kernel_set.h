// The kernels as the backend calls them: a launcher for each operation. There are two tables of one text (launchers.h): what nvcc
// makes of it, and what the host's compiler makes of it in emulation.
#pragma once

#include <span>

#include "core/kernels/attention_scratch.h"
#include "core/kernels/cuda/runtime.h"
#include "core/kernels/cuda_operations.h"

namespace moed::cuda {

template <class Operation>
using Launcher = void (*)(DeviceStream& stream, const Operation& operation);

struct KernelSet {
  Launcher<AddOperation> add;
  Launcher<AddScaledOperation> add_scaled;
  Launcher<ScaleOperation> scale;
  Launcher<MultiplyOperation> multiply;
  Launcher<SigmoidGateOperation> sigmoid_gate;
  Launcher<SoftplusGateOperation> softplus_gate;
  Launcher<ActivateOperation> activate;
  Launcher<SoftCapOperation> soft_cap;
  Launcher<DeltaGatesOperation> delta_gates;
  Launcher<StepSizesOperation> step_sizes;
  Launcher<GatherOperation> gather;
  Launcher<CombineOperation> combine;
  Launcher<ConvolveOperation> convolve;
  Launcher<NormOperation> rms_norm;
  Launcher<NormOperation> layer_norm;
  Launcher<SoftmaxOperation> softmax;
  Launcher<RouteOperation> route;
  Launcher<RopeOperation> rope;
  Launcher<PrepareOperation> prepare;
  Launcher<ActivateAndPrepareOperation> activate_and_prepare;
  Launcher<EmbedOperation> embed;
  Launcher<ProductsOperation> products;
  Launcher<HalveWeightsOperation> halve_weights;
  Launcher<HalveInputOperation> halve_input;
  Launcher<FinishProductsOperation> finish_products;
  Launcher<StoreRowsOperation> store_rows;
  Launcher<HeadsOperation> heads;
  Launcher<AttentionOperation> attention;
  Launcher<StateOperation> states;
};

inline constexpr int kAttentionRowsOfBlock = 8;  // query rows that a block of threads attends, at most
inline constexpr int kPanelsOfBlock = 4;         // panels of a product of many tokens that a block of threads takes
inline constexpr int kFewTokens = 8;             // of a product, at most. Then a block of threads takes a panel, or of one token
inline constexpr int kMostPanels = 4;            // so many at most as make no more than
inline constexpr int kFewProductBytes = 8192;    // which it brings to shared memory at a time

// Of a product, that a block of threads takes. Few ones may begin between two units of 16 bytes.
constexpr int PanelsOfBlock(size_t panel_bytes, int tokens) {
  if (tokens > kFewTokens) return kPanelsOfBlock;
  for (int panels = tokens == 1 ? kMostPanels : 1; panels > 1; panels /= 2) {
    if (panels * panel_bytes + sizeof(uint64_t) <= kFewProductBytes) return panels;
  }
  return 1;
}

extern const KernelSet kEmulatedKernels;
extern const KernelSet kCompiledKernels;
// All that kCompiledKernels launches.
std::span<const Kernel> KernelsToLoad();

}  // namespace moed::cuda
