// A row's weights as numbers: a lane of a warp for each of 32 columns.
#pragma once

#include "core/kernels/device/weights.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

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

// body(column, weight) for the lane's columns of a row's block of the format.
template <FormatId kFormat, class Memory, class Body>
__device__ inline void ForBlock(Memory block, int row, int lane, const Body& body) {
  using Layout = PanelLayout<kFormat>;
  quant::RowBlock scales;
  if constexpr (!kIsFloats<kFormat>) Layout::Scales::Get(block, row, scales);
  MOED_UNROLL
  for (int b = 0; b < Layout::kColumns / kBlockColumns; ++b) {
    const int column = kBlockColumns * b + lane;
    if constexpr (kIsFloats<kFormat>) {
      body(column, Layout::Weight(block, column, row));
    } else {
      body(column, WeightOfCodes<Layout>(block, scales, b, row, lane));
    }
  }
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
