// Rows of a matrix as numbers: a warp for each block of a row, a lane for each of 32 columns.
#pragma once

#include "core/kernels/cuda_kernel_set.h"
#include "core/kernels/device/weight_numbers.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr unsigned kEmbedThreads = 128;

template <FormatId kFormat>
__global__ void Embed(cuda::EmbedOperation a) {
  JoinLaunches();
  using Layout = PanelLayout<kFormat>;
  const unsigned blocks = Blocks(static_cast<unsigned>(a.cols), Layout::kColumns);
  const unsigned warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, of_row = warp % blocks;
  if (warp >= static_cast<unsigned>(a.rows) * blocks) return;
  const int lane = threadIdx.x % 32, row = Global<const int32_t>(a.tokens)[warp / blocks],
            first = static_cast<int>(of_row) * Layout::kColumns;
  const auto block = BytesAt(Global<const unsigned char>(a.matrix) +
                             (static_cast<int64_t>(row / kPanelRows) * blocks + of_row) * Layout::kBytes);
  const Global<float> y = Global<float>(a.y) + static_cast<int64_t>(warp / blocks) * a.cols;
  ForBlock<kFormat>(block, row % kPanelRows, lane, [&](int column, float weight) {
    if (first + column < a.cols) y[first + column] = weight;
  });
}

template <FormatId kFormat>
struct EmbedOf {
  static void kLaunch(DeviceStream& stream, const cuda::EmbedOperation& a) {
    const auto blocks = Blocks(static_cast<unsigned>(a.cols), PanelLayout<kFormat>::kColumns);
    const unsigned warps = static_cast<unsigned>(a.rows) * blocks;
    Launch<Embed<kFormat>>(stream, {.grid = {Blocks(warps, kEmbedThreads / 32)}, .block = {kEmbedThreads}}, a);
  }
};

inline void LaunchEmbed(DeviceStream& stream, const cuda::EmbedOperation& a) {
  if (a.rows == 0 || a.cols == 0) return;
  kFormatTable<cuda::Launcher<cuda::EmbedOperation>, EmbedOf>.of[static_cast<int>(a.format)](stream, a);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
