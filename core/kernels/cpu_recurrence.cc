#include "core/kernels/cpu_recurrence.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/quant/format.h"

namespace moed {
namespace {

constexpr int64_t kLeastWork = 8192;  // multiply-adds worth waking another thread for
constexpr int kExponentialCost = 12;  // in such
constexpr int kChannels = 256;        // of a piece

// Some channels of a run's rows and of those before it, counted back from -1.
struct ChannelRows {
  const float* Row(int row) const {
    static constexpr float kZeros[kChannels] = {};
    if (row >= 0) return x + int64_t{row} * channels;
    return run->position == 0 ? kZeros : run->state + first + int64_t{taps - 1 + row} * channels;
  }
  const StateRun* run;
  const float* x;  // of row 0
  int channels, taps, first;
};

// Without instructions of its own: the compiler's vectors round alike.
void MultiplyAndAdd(const float* __restrict a, const float* __restrict b, int count, float* __restrict sum) {
  for (int i = 0; i < count; ++i) sum[i] += a[i] * b[i];
}

void ConvolveChannels(const KernelTable& kernels, const ConvolutionShape& shape, const ChannelRows& rows, int count,
                      const float* weights, float* y) {
  const int taps = rows.taps;
  const StateRun& run = *rows.run;
  for (int row = 0; row < run.tokens; ++row, y += rows.channels) {
    if (shape.bias == nullptr) {
      std::fill_n(y, count, 0.0f);
    } else {
      std::copy_n(shape.bias + rows.first, count, y);
    }
    for (int tap = 0; tap < taps; ++tap) {
      MultiplyAndAdd(weights + int64_t{tap} * rows.channels, rows.Row(row - (taps - 1) + tap), count, y);
    }
    if (shape.silu) kernels.sigmoid_gate(y, y, count);
  }
  // Ascending: what is still to be copied lies behind.
  for (int kept = 0; kept < taps - 1; ++kept) {
    std::copy_n(rows.Row(run.tokens - (taps - 1) + kept), count, run.state + rows.first + int64_t{kept} * rows.channels);
  }
}

// body(run, its first row, i) for i in [0, count) of every run.
template <class Body>
void ForRuns(Executor& executor, std::span<const StateRun> runs, int count, int64_t work_per_row, const Body& body) {
  int64_t rows = 0;
  for (const StateRun& run : runs) rows += run.tokens;
  if (rows == 0) return;
  const int64_t work = std::max<int64_t>(rows * work_per_row / static_cast<int64_t>(runs.size()), 1);  // of one body
  executor.ParallelFor(static_cast<int>(runs.size()) * count, static_cast<int>(CeilDiv(kLeastWork, work)),
                       [&](int begin, int end) {
                         int64_t first_row = 0;
                         for (int r = 0; r < static_cast<int>(runs.size()) && r * count < end; ++r) {
                           for (int i = std::max(begin, r * count); i < std::min(end, (r + 1) * count); ++i) {
                             body(runs[r], first_row, i - r * count);
                           }
                           first_row += runs[r].tokens;
                         }
                       });
}

// body(arguments, the run's first row of x, where in it the head's keys begin among all keys, head) for the value heads of every
// run. The arguments lack query, key and value, and what is the rule's own. `decays`: of a head.
template <class Shape, class Body>
void ForHeads(Executor& executor, const Shape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
              const float* rate, float* output, int decays, const Body& body) {
  const int64_t state_floats = int64_t{shape.key_dim} * shape.value_dim;
  ForRuns(executor, runs, shape.value_heads, 2 * state_floats, [&](const StateRun& run, int64_t first_row, int head) {
    float* const state = run.state + head * state_floats;
    if (run.position == 0) std::fill_n(state, state_floats, 0.0f);
    const int64_t gates = first_row * shape.value_heads + head;
    const StateArguments arguments = {.decay = decay + gates * decays,
                                      .rate = rate + gates,
                                      .state = state,
                                      .output = output + first_row * shape.output_row() + int64_t{head} * shape.value_dim,
                                      .row_stride = shape.row(),
                                      .gate_stride = shape.value_heads,
                                      .decay_stride = int64_t{shape.value_heads} * decays,
                                      .state_stride = shape.value_dim,
                                      .output_stride = shape.output_row(),
                                      .tokens = run.tokens,
                                      .key_dim = shape.key_dim,
                                      .columns = shape.value_dim};
    body(arguments, x + first_row * shape.row(), int64_t{shape.KeyHead(head)} * shape.key_dim, head);
  });
}

}  // namespace

void ConvolveOnCpu(const KernelTable& kernels, Executor& executor, const ConvolutionShape& shape, std::span<const StateRun> runs,
                   const float* x, const float* weights, float* y) {
  MOED_CHECK(shape.taps >= 2 && shape.taps <= kMostTaps);
  const int64_t work = kChannels * int64_t{shape.taps + kExponentialCost};
  const int pieces = static_cast<int>(CeilDiv(shape.channels, kChannels));
  ForRuns(executor, runs, pieces, work, [&](const StateRun& run, int64_t first_row, int piece) {
    const int first = piece * kChannels;
    const int64_t at = first_row * shape.channels + first;
    ConvolveChannels(kernels, shape, {&run, x + at, shape.channels, shape.taps, first},
                     std::min(kChannels, shape.channels - first), weights + first, y + at);
  });
}

void DeltaRuleOnCpu(const KernelTable& kernels, Executor& executor, const DeltaRuleShape& shape, std::span<const StateRun> runs,
                    const float* x, const float* decay, const float* rate, float* output) {
  const int64_t key_width = int64_t{shape.key_heads} * shape.key_dim;
  ForHeads(executor, shape, runs, x, decay, rate, output, shape.decays(),
           [&](StateArguments arguments, const float* row, int64_t keys, int head) {
             arguments.query = row + keys;
             arguments.key = arguments.query + key_width;
             arguments.value = row + 2 * key_width + int64_t{head} * shape.value_dim;
             arguments.scale = shape.scale;
             arguments.skip = 0;
             arguments.decay_by_channel = shape.decay_by_channel;
             kernels.delta_rule(arguments);
           });
}

void StateSpaceOnCpu(const KernelTable& kernels, Executor& executor, const StateSpaceShape& shape, std::span<const StateRun> runs,
                     const float* x, const float* decay, const float* steps, const float* skip, float* output) {
  const int64_t key_width = int64_t{shape.key_heads} * shape.key_dim;
  ForHeads(executor, shape, runs, x, decay, steps, output, 1,
           [&](StateArguments arguments, const float* row, int64_t keys, int head) {
             arguments.key = row + shape.output_row() + keys;
             arguments.query = arguments.key + key_width;
             arguments.value = row + int64_t{head} * shape.value_dim;
             arguments.scale = 1;
             arguments.skip = skip[head];
             arguments.decay_by_channel = false;
             kernels.state_space(arguments);
           });
}

}  // namespace moed
