#include "core/kernels/cpu_products.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/check.h"

namespace moed {
namespace {

constexpr int64_t kGrainBlockProducts = 256;  // 8 x 32 weights times one token: less costs less than waking another thread
constexpr int kPanelsTogether = 4;            // kernels take so many at once where they can
constexpr int kStagedSums = 4096;
constexpr int kFewTokens = 8;           // of a product: memory is its bound
constexpr int kRangesOfManyTokens = 2;  // of each thread

// Of panels [begin, end).
void Multiply(const KernelTable& kernels, const MatrixView& weights, const Activations& x, int begin, int end, float* output,
              int64_t output_stride) {
  kernels.mat_mul.of[static_cast<int>(weights.format)]({.weights = reinterpret_cast<const unsigned char*>(weights.data),
                                                        .rows = weights.rows,
                                                        .blocks = Blocks(weights.cols),
                                                        .tokens = x.tokens,
                                                        .values = x.values,
                                                        .codes = x.codes,
                                                        .scales = x.scales,
                                                        .sums = x.sums,
                                                        .output = output,
                                                        .output_stride = output_stride},
                                                       begin, end);
}

// What the job makes of its rows' sums, of one token, from first_row on.
void Finish(const KernelTable& kernels, const MatMulJob& job, int first_row, std::span<float> sums, float* output) {
  const auto count = static_cast<int64_t>(sums.size());
  if (job.bias != nullptr) kernels.add(sums.data(), job.bias + first_row, count);
  if (job.adds) return kernels.add_scaled(output, sums.data(), job.scale, count);
  for (int64_t i = 0; i < count; ++i) output[i] = job.scale * sums[i];
}

// Of as many panels and tokens as there is room for, the sums lie on the stack meanwhile.
void MultiplyAndFinish(const KernelTable& kernels, const MatMulJob& job, int begin, int end) {
  std::array<float, kStagedSums> sums;
  const int tokens = std::min(job.input->tokens, kStagedSums / (kPanelsTogether * kPanelRows));
  const int panels = kStagedSums / (tokens * kPanelRows) / kPanelsTogether * kPanelsTogether;
  for (int panel = begin; panel < end; panel += panels) {
    const int first_row = panel * kPanelRows,
              rows = std::min({panels * kPanelRows, end * kPanelRows - first_row, job.weights.rows - first_row});
    for (int token = 0; token < job.input->tokens; token += tokens) {
      const Activations x = job.input->Rows(token, std::min(tokens, job.input->tokens - token));
      Multiply(kernels, job.weights.Rows(first_row, rows), x, 0, Panels(rows), sums.data(), rows);
      for (int i = 0; i < x.tokens; ++i) {
        Finish(kernels, job, first_row, std::span(sums).subspan(static_cast<size_t>(i) * rows, rows),
               job.output + (token + i) * job.output_stride + first_row);
      }
    }
  }
}

void RunPanels(const KernelTable& kernels, const MatMulJob& job, int begin, int end) {
  if (job.input->tokens == 0) return;
  if (job.bias != nullptr || job.scale != 1 || job.adds) return MultiplyAndFinish(kernels, job, begin, end);
  Multiply(kernels, job.weights, *job.input, begin, end, job.output, job.output_stride);
}

}  // namespace

// The panels of all jobs, one job after the other, are one index space.
void MatMulOnCpu(const KernelTable& kernels, Executor& executor, std::span<const MatMulJob> jobs) {
  int panels = 0, most_tokens = 0;
  int64_t block_products = 0;
  for (const MatMulJob& job : jobs) {
    MOED_CHECK(job.input->cols == job.weights.cols && job.input->forms().Cover(InputForms::Of({job.weights.format})));
    MOED_CHECK(FitsColumns(job.weights.format, job.weights.cols));
    panels += Panels(job.weights.rows);
    most_tokens = std::max(most_tokens, job.input->tokens);
    block_products += int64_t{Panels(job.weights.rows)} * Blocks(job.weights.cols) * job.input->tokens;
  }
  if (block_products == 0) return;
  const int64_t least = CeilDiv(kGrainBlockProducts, std::max<int64_t>(block_products / panels, 1));
  // Of many tokens each range packs the inputs anew: there are few ranges then.
  const int64_t few = most_tokens > kFewTokens ? CeilDiv(panels, executor.threads() * kRangesOfManyTokens) : 0;
  const int grain = static_cast<int>(CeilDiv(std::max(least, few), kPanelsTogether) * kPanelsTogether);
  executor.ParallelFor(panels, grain, [&](int begin, int end) {
    int first = 0;
    for (const MatMulJob& job : jobs) {
      const int count = Panels(job.weights.rows);
      const int from = std::max(begin - first, 0);
      const int to = std::min(end - first, count);
      if (from < to) RunPanels(kernels, job.Chosen(), from, to);
      first += count;
    }
  });
}

}  // namespace moed
