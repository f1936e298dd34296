// How the products of a matrix reach memory, counted in emulation.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/base/executor.h"
#include "core/kernels/cuda/emulation/runtime.h"
#include "core/kernels/cuda_backend.h"
#include "tests/kernels/fixtures.h"

namespace moed {

struct ProductTraffic {
  emulation::KernelTraffic kernel;
  size_t matrix_bytes = 0;

  const emulation::GlobalTraffic& weights() const { return kernel.loads_once; }
  double moved_over_matrix() const {
    return 32.0 * static_cast<double>(weights().sectors_moved) / static_cast<double>(matrix_bytes);
  }
  double wide_share() const {
    double all = 0;
    for (const auto& [width, bytes] : weights().bytes_by_width) all += static_cast<double>(bytes);
    const auto wide = weights().bytes_by_width.find(16);
    return wide == weights().bytes_by_width.end() ? 0 : static_cast<double>(wide->second) / all;
  }
};

// A matrix of 64 rows as wide as gpt-oss-20b's, or as an even number of the format's blocks makes of that, times as many tokens.
inline ProductTraffic TrafficOfProduct(const Format& format, int tokens) {
  constexpr int kRows = 64, kColumns = 2880;
  auto emulated = emulation::MakeEmulatedRuntime({.watch = false, .log = true});
  const emulation::EmulatedRuntime& runtime = *emulated;
  InlineExecutor executor;
  const auto backend = MakeCudaBackend("cuda-emulated", cuda::kEmulatedKernels, std::move(emulated), executor).value();
  const int two_blocks = 2 * format.block_columns;
  const int cols = static_cast<int>(CeilDiv(kColumns, two_blocks)) * two_blocks;
  const PackedMatrix matrix = RandomMatrix(format.id, kRows, cols, 3);
  Buffer aligned = Buffer::Allocate(matrix.bytes.size()).value();
  std::memcpy(aligned.data(), matrix.bytes.data(), matrix.bytes.size());
  MatrixView view = matrix.view;
  view.data = aligned.data();
  Multiply(*backend, view, Gaussian(static_cast<size_t>(tokens) * cols, 4), tokens);
  ProductTraffic traffic{.matrix_bytes = matrix.bytes.size()};
  for (const auto& [name, kernel] : runtime.traffic()) {
    if (name.starts_with("Products")) traffic.kernel = kernel;
  }
  return traffic;
}

}  // namespace moed
