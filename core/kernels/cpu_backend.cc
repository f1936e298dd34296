#include "core/kernels/cpu_backend.h"

#include <algorithm>
#include <atomic>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/kernels/math.h"

namespace moed {
namespace {

// A range smaller than these costs less than waking another thread.
constexpr int64_t kGrainBlockProducts = 256;  // 8 x 32 weights times one token
constexpr int64_t kGrainElements = 8192;      // of a loop over floats, in exponentials about a third

// Iterations per range, so that a range has at least `least` units of work; a multiple of `multiple`.
int Grain(int64_t least, int64_t units_per_iteration, int multiple = 1) {
  const int64_t iterations = CeilDiv(least, std::max<int64_t>(units_per_iteration, 1));
  return static_cast<int>(CeilDiv(iterations, multiple) * multiple);
}

class CpuBackend final : public ComputeBackend {
 public:
  CpuBackend(std::string_view name, const KernelTable& kernels, Executor& executor)
      : name_(name), kernels_(kernels), executor_(executor) {}

  std::string_view name() const override { return name_; }
  int threads() const override { return executor_.threads(); }

  Activations Prepare(const float* x, int tokens, int cols, int64_t stride, std::span<std::byte> storage) override;
  void MatMul(std::span<const MatMulJob> jobs) override;
  void RmsNorm(const float* x, const float* weight, float eps, int rows, int cols, float* y) override;
  void Rope(float* x, int tokens, int64_t stride, int heads, int head_dim, const int32_t* positions,
            const float* inv_freq) override;
  void Attention(const AttentionShape& shape, std::span<const AttentionJob> jobs, std::span<float> scores) override;
  void SwiGlu(const float* gate, const float* up, int64_t n, float* out) override;
  void Softmax(float* x, int rows, int cols) override;
  float Sigmoid(float x) override { return moed::Sigmoid(x); }
  void AddScaled(float* y, const float* x, float scale, int64_t n) override { kernels_.add_scaled(y, x, scale, n); }
  void Add(float* y, const float* x, int64_t n) override { kernels_.add(y, x, n); }

 private:
  void RunPanels(const MatMulJob& job, int begin, int end) const;

  const std::string_view name_;
  const KernelTable& kernels_;
  Executor& executor_;
};

Activations CpuBackend::Prepare(const float* x, int tokens, int cols, int64_t stride, std::span<std::byte> storage) {
  const int blocks = Blocks(cols);
  const size_t width = static_cast<size_t>(blocks) * kBlockColumns;
  Arena arena(storage);
  const std::span<float> values = arena.Take<float>(tokens * width);
  const std::span<int8_t> codes = arena.Take<int8_t>(tokens * width);
  const std::span<float> scales = arena.Take<float>(static_cast<size_t>(tokens) * blocks);
  const std::span<int32_t> sums = arena.Take<int32_t>(static_cast<size_t>(tokens) * blocks);
  executor_.ParallelFor(tokens, Grain(kGrainElements, cols), [&](int begin, int end) {
    for (int token = begin; token < end; ++token) {
      kernels_.prepare({.x = x + token * stride,
                        .cols = cols,
                        .values = values.data() + token * width,
                        .codes = codes.data() + token * width,
                        .scales = scales.data() + static_cast<size_t>(token) * blocks,
                        .sums = sums.data() + static_cast<size_t>(token) * blocks});
    }
  });
  return {tokens, cols, values.data(), codes.data(), scales.data(), sums.data()};
}

void CpuBackend::RunPanels(const MatMulJob& job, int begin, int end) const {
  const Activations& x = *job.input;
  kernels_.mat_mul[static_cast<int>(job.weights.format)]({.weights = reinterpret_cast<const unsigned char*>(job.weights.data),
                                                          .rows = job.weights.rows,
                                                          .blocks = Blocks(job.weights.cols),
                                                          .tokens = x.tokens,
                                                          .values = x.values,
                                                          .codes = x.codes,
                                                          .scales = x.scales,
                                                          .sums = x.sums,
                                                          .output = job.output,
                                                          .output_stride = job.output_stride},
                                                         begin, end);
}

// The panels of all jobs, one job after the other, are one index space.
void CpuBackend::MatMul(std::span<const MatMulJob> jobs) {
  constexpr int kPanelsTogether = 4;  // kernels take so many at once where they can
  int panels = 0;
  int64_t block_products = 0;
  for (const MatMulJob& job : jobs) {
    MOED_CHECK(job.input->cols == job.weights.cols);
    panels += Panels(job.weights.rows);
    block_products += int64_t{Panels(job.weights.rows)} * Blocks(job.weights.cols) * job.input->tokens;
  }
  if (block_products == 0) return;
  const int grain = Grain(kGrainBlockProducts, block_products / panels, kPanelsTogether);
  executor_.ParallelFor(panels, grain, [&](int begin, int end) {
    int first = 0;
    for (const MatMulJob& job : jobs) {
      const int count = Panels(job.weights.rows);
      const int from = std::max(begin - first, 0);
      const int to = std::min(end - first, count);
      if (from < to) RunPanels(job, from, to);
      first += count;
    }
  });
}

void CpuBackend::RmsNorm(const float* x, const float* weight, float eps, int rows, int cols, float* y) {
  executor_.ParallelFor(rows, Grain(kGrainElements, cols), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      kernels_.rms_norm(x + int64_t{row} * cols, weight, eps, cols, y + int64_t{row} * cols);
    }
  });
}

void CpuBackend::Rope(float* x, int tokens, int64_t stride, int heads, int head_dim, const int32_t* positions,
                      const float* inv_freq) {
  executor_.ParallelFor(tokens, Grain(kGrainElements, int64_t{heads} * head_dim), [&](int begin, int end) {
    for (int token = begin; token < end; ++token) {
      kernels_.rope({x + token * stride, heads, head_dim, static_cast<float>(positions[token]), inv_freq});
    }
  });
}

// Each iteration of the loop owns one slice of `scores` and takes (job, head) pairs until none is left.
void CpuBackend::Attention(const AttentionShape& shape, std::span<const AttentionJob> jobs, std::span<float> scores) {
  if (jobs.empty()) return;
  int longest = 0;
  int64_t work = 0;
  for (const AttentionJob& job : jobs) {
    longest = std::max(longest, job.length);
    work += int64_t{2} * job.length * shape.heads * shape.head_dim;
  }
  const size_t slice = AttentionScratchFloats(shape, 1, longest);
  const int slices = static_cast<int>(std::min<int64_t>(threads(), CeilDiv(work, kGrainElements)));
  MOED_CHECK(scores.size() >= slices * slice);
  const int heads_per_kv_head = shape.heads / shape.kv_heads;
  const int together = HeadsTogether(shape);
  const int groups_per_kv_head = static_cast<int>(CeilDiv(heads_per_kv_head, together));
  const int groups_per_job = shape.kv_heads * groups_per_kv_head;
  const int64_t row = KvRowElements(shape.kv_format, shape.head_dim);
  // All tokens of a prompt's block by one group of heads before the next: its keys and values then stay near the processor.
  const int tokens = static_cast<int>(jobs.size());
  const int groups = tokens * groups_per_job;
  std::atomic<int> next{0};
  executor_.ParallelFor(slices, 1, [&](int begin, int) {
    for (int group; (group = next.fetch_add(1, std::memory_order_relaxed)) < groups;) {
      const AttentionJob& job = jobs[group % tokens];
      const int kv_head = group / tokens / groups_per_kv_head;
      const int first_of_kv_head = group / tokens % groups_per_kv_head * together;
      const int head = kv_head * heads_per_kv_head + first_of_kv_head;
      kernels_.attention[static_cast<int>(shape.kv_format)]({.query = job.query + int64_t{head} * shape.head_dim,
                                                             .output = job.output + int64_t{head} * shape.head_dim,
                                                             .key_pages = job.key_pages.data(),
                                                             .value_pages = job.value_pages.data(),
                                                             .offset = kv_head * shape.page_tokens * row,
                                                             .token_stride = row,
                                                             .page_tokens = shape.page_tokens,
                                                             .length = job.length,
                                                             .head_dim = shape.head_dim,
                                                             .scale = shape.scale,
                                                             .scores = scores.data() + begin * slice,
                                                             .heads = std::min(together, heads_per_kv_head - first_of_kv_head),
                                                             .score_stride = static_cast<int64_t>(slice) / together});
    }
  });
}

void CpuBackend::SwiGlu(const float* gate, const float* up, int64_t n, float* out) {
  constexpr int kChunk = 1024;
  executor_.ParallelFor(static_cast<int>(CeilDiv(n, kChunk)), Grain(kGrainElements, int64_t{3} * kChunk),
                        [&](int begin, int end) {
                          const int64_t from = int64_t{begin} * kChunk;
                          const int64_t to = std::min(int64_t{end} * kChunk, n);
                          kernels_.swi_glu(gate + from, up + from, to - from, out + from);
                        });
}

void CpuBackend::Softmax(float* x, int rows, int cols) {
  executor_.ParallelFor(rows, Grain(kGrainElements, int64_t{3} * cols), [&](int begin, int end) {
    for (int row = begin; row < end; ++row) kernels_.softmax(x + int64_t{row} * cols, cols);
  });
}

}  // namespace

std::unique_ptr<ComputeBackend> MakeCpuBackend(std::string_view name, const KernelTable& kernels, Executor& executor) {
  return std::make_unique<CpuBackend>(name, kernels, executor);
}

size_t ComputeBackend::ActivationBytes(int tokens, int cols) {
  const size_t blocks = static_cast<size_t>(tokens) * Blocks(cols);
  return Arena::Rounded(blocks * kBlockColumns * sizeof(float)) + Arena::Rounded(blocks * kBlockColumns * sizeof(int8_t)) +
         Arena::Rounded(blocks * sizeof(float)) + Arena::Rounded(blocks * sizeof(int32_t));
}

}  // namespace moed
