#include "core/kernels/cuda_states.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace moed::cuda {
namespace {

constexpr int kStateColumns = 32;          // of a warp, at most
constexpr int kMostStateBytes = 48 << 10;  // of shared memory, for a warp's columns

const int64_t* FirstRows(std::span<const StateRun> runs, Descriptions& descriptions) {
  const auto first_rows = descriptions.Take<int64_t>(runs.size());
  int64_t first = 0;
  for (size_t i = 0; i < runs.size(); ++i) first_rows.host[i] = std::exchange(first, first + runs[i].tokens);
  return first_rows.device;
}

// `operation` with what all kinds of states have.
template <class Shape>
StateOperation WithShape(StateOperation operation, const Shape& shape, std::span<const StateRun> runs,
                         Descriptions& descriptions) {
  const int column_bytes = shape.key_dim * static_cast<int>(sizeof(float));
  MOED_CHECK(column_bytes <= kMostStateBytes);
  operation.runs = descriptions.Copy(runs);
  operation.first_rows = FirstRows(runs, descriptions);
  operation.row = shape.row();
  operation.count = static_cast<int>(runs.size());
  operation.key_heads = shape.key_heads;
  operation.value_heads = shape.value_heads;
  operation.key_dim = shape.key_dim;
  operation.value_dim = shape.value_dim;
  operation.columns = std::min(kStateColumns, kMostStateBytes / column_bytes);
  return operation;
}

}  // namespace

ConvolveOperation ConvolutionOf(const ConvolutionShape& shape, std::span<const StateRun> runs, const float* x,
                                const float* weights, float* y, Descriptions& descriptions) {
  MOED_CHECK(shape.taps >= 2 && shape.taps <= kMostTaps);
  return {.runs = descriptions.Copy(runs),
          .first_rows = FirstRows(runs, descriptions),
          .x = x,
          .weights = weights,
          .bias = shape.bias,
          .y = y,
          .channels = shape.channels,
          .taps = shape.taps,
          .silu = shape.silu,
          .n = static_cast<int64_t>(runs.size()) * shape.channels};
}

StateOperation StatesOf(const DeltaRuleShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                        const float* rate, float* output, Descriptions& descriptions) {
  const int64_t key_width = int64_t{shape.key_heads} * shape.key_dim;
  return WithShape({.x = x,
                    .decay = decay,
                    .rate = rate,
                    .output = output,
                    .queries = 0,
                    .keys = key_width,
                    .values = 2 * key_width,
                    .key_heads_in_turn = shape.key_heads_in_turn,
                    .decay_by_channel = shape.decay_by_channel,
                    .scale = shape.scale},
                   shape, runs, descriptions);
}

StateOperation StatesOf(const StateSpaceShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                        const float* steps, const float* skip, float* output, Descriptions& descriptions) {
  return WithShape({.x = x,
                    .decay = decay,
                    .rate = steps,
                    .skip = skip,
                    .output = output,
                    .queries = shape.output_row() + int64_t{shape.key_heads} * shape.key_dim,
                    .keys = shape.output_row(),
                    .values = 0},
                   shape, runs, descriptions);
}

}  // namespace moed::cuda
