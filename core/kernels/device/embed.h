// Rows of a matrix as numbers: a warp for each block of a row, a lane for each of 32 columns.
#pragma once

#include "core/kernels/cuda_kernel_set.h"
#include "core/kernels/device/weights.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr unsigned kEmbedThreads = 128;

// Column 32 b + lane of a row's block.
template <class Layout, class Memory>
__device__ inline float WeightOfCodes(Memory block, const quant::RowBlock& scales, int b, int row, int lane) {
  constexpr int kParts = kBlockColumns / Layout::kPartColumns;
  const uint32_t levels = LevelWord<Layout>(block, b, row, lane / quant::kGroupColumns);
  const auto level = static_cast<int8_t>(levels >> 8 * (lane % quant::kGroupColumns));
  const bool second = lane >= Layout::kPartColumns;  // part of two
  float scale = Layout::Scale(scales, kParts * b), offset = Layout::Offset(scales, kParts * b);
  if (kParts > 1 && second)
    scale = Layout::Scale(scales, kParts * b + kParts - 1), offset = Layout::Offset(scales, kParts * b + kParts - 1);
  const float weight = scale * static_cast<float>(level);
  return Layout::kHasOffsets ? weight + offset : weight;
}

template <FormatId kFormat>
__global__ void Embed(cuda::EmbedOperation a) {
  using Layout = PanelLayout<kFormat>;
  const int blocks = (a.cols + Layout::kColumns - 1) / Layout::kColumns;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (warp >= static_cast<int64_t>(a.rows) * blocks) return;
  const int lane = threadIdx.x % 32, row = Global<const int32_t>(a.tokens)[warp / blocks],
            first = warp % blocks * Layout::kColumns;
  const auto block = BytesAt(Global<const unsigned char>(a.matrix) +
                             (static_cast<int64_t>(row / kPanelRows) * blocks + warp % blocks) * Layout::kBytes);
  const Global<float> y = Global<float>(a.y) + warp / blocks * a.cols;
  quant::RowBlock scales;
  if constexpr (!kIsFloats<kFormat>) Layout::Scales::Get(block, row % kPanelRows, scales);
  MOED_UNROLL
  for (int b = 0; b < Layout::kColumns / kBlockColumns; ++b) {
    const int column = kBlockColumns * b + lane;
    if (first + column >= a.cols) continue;
    if constexpr (kIsFloats<kFormat>) {
      y[first + column] = Layout::Weight(block, column, row % kPanelRows);
    } else {
      y[first + column] = WeightOfCodes<Layout>(block, scales, b, row % kPanelRows, lane);
    }
  }
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
