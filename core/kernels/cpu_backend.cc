#include "core/kernels/cpu_backend.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/check.h"
#include "core/kernels/cpu_attention.h"
#include "core/kernels/cpu_products.h"
#include "core/kernels/cpu_recurrence.h"
#include "core/kernels/math.h"
#include "core/kernels/router.h"

namespace moed {
namespace {

// A range smaller than these costs less than waking another thread.
constexpr int64_t kGrainElements = 8192;  // of a loop over floats
constexpr int kExponentialCost = 3;       // in such elements
constexpr int64_t kPieceElements = 1024;

// Iterations per range, so that a range has at least `least` units of work.
int Grain(int64_t least, int64_t units_per_iteration) {
  return static_cast<int>(CeilDiv(least, std::max<int64_t>(units_per_iteration, 1)));
}

class CpuBackend final : public ComputeBackend {
 public:
  CpuBackend(std::string_view name, const KernelTable& kernels, Executor& executor)
      : name_(name), kernels_(kernels), executor_(executor) {}

  std::string_view name() const override { return name_; }
  int threads() const override { return executor_.threads(); }
  BackendMemory& memory() override { return BackendMemory::Host(); }

  // Everything has run when its call returns.
  absl::Status Fence() override { return absl::OkStatus(); }
  bool Idle() const override { return true; }
  void Await(const ReadyEvent&) override { MOED_CHECK(false); }  // nothing is brought to a CPU

  void Embed(const MatrixView& matrix, std::span<const TokenId> tokens, float* y) override;
  void GatherRows(const float* x, int cols, std::span<const int32_t> rows, float* y) override;
  Activations Prepare(const float* x, int tokens, int cols, int64_t stride, InputForms forms,
                      std::span<std::byte> storage) override;
  Activations Gather(const Activations& from, std::span<const int32_t> rows, std::span<std::byte> storage) override;
  void MatMul(std::span<const MatMulJob> jobs) override { MatMulOnCpu(kernels_, executor_, jobs); }
  void Normalize(const Norm& norm, const float* x, int rows, int cols, float* y) override;
  void Scale(float* x, float scale, int64_t n) override;
  void Rope(const RopeShape& shape, float* x, int tokens, int64_t stride, const int32_t* positions,
            const float* inv_freq) override;
  void StoreKv(const AttentionShape& shape, std::span<const KvRun> runs, const float* keys, const float* values) override {
    StoreKvOnCpu(kernels_, executor_, shape, runs, keys, values);
  }
  void Attention(const AttentionShape& shape, std::span<const KvRun> runs, const float* query, float* output,
                 std::span<float> scores) override {
    AttentionOnCpu(kernels_, executor_, shape, runs, query, output, scores);
  }
  void StoreLatent(const LatentShape& shape, std::span<const KvRun> runs, const float* latents, const float* rotated) override {
    StoreLatentOnCpu(kernels_, executor_, shape, runs, latents, rotated);
  }
  void AttendLatent(const LatentShape& shape, std::span<const KvRun> runs, const float* query, const float* rotated,
                    int64_t rotated_stride, float* output, std::span<float> scores) override {
    AttendLatentOnCpu(kernels_, executor_, shape, runs, query, rotated, rotated_stride, output, scores);
  }
  void Convolve(const ConvolutionShape& shape, std::span<const StateRun> runs, const float* x, const float* weights,
                float* y) override {
    ConvolveOnCpu(kernels_, executor_, shape, runs, x, weights, y);
  }
  void DeltaGates(float* a, float* b, const float* bias, const float* decay_rates, int rows, int heads, int decays) override;
  void DeltaRule(const DeltaRuleShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                 const float* rate, float* output) override {
    DeltaRuleOnCpu(kernels_, executor_, shape, runs, x, decay, rate, output);
  }
  void StepSizes(float* steps, const float* bias, const float* decay_rates, int rows, int heads, float* decays) override;
  void StateSpace(const StateSpaceShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                  const float* steps, const float* skip, float* output) override {
    StateSpaceOnCpu(kernels_, executor_, shape, runs, x, decay, steps, skip, output);
  }
  void Multiply(float* x, const float* by, int64_t n) override;
  void SigmoidGate(float* x, const float* gate, int64_t n) override;
  void SoftplusGate(float* x, const float* gates, int64_t n, int width) override;
  void Activate(const FfnActivation& activation, const float* gate, const float* up, int64_t n, float* out) override;
  void SoftCap(float* x, float cap, int64_t n) override;
  void Softmax(float* x, int rows, int cols) override;
  void Route(const RouterShape& shape, float* logits, int rows, ExpertChoice* choices) override;
  void Rank(const RouterShape& shape, float* logits, int rows) override;
  void Combine(const CombineJob& job) override;
  void AddScaled(float* y, const float* x, float scale, int64_t n) override;
  void Add(float* y, const float* x, int64_t n) override;

 private:
  // body(row) for each of them.
  template <class Body>
  void ForRows(int rows, int64_t elements_per_row, const Body& body) {
    executor_.ParallelFor(rows, Grain(kGrainElements, elements_per_row), [&](int begin, int end) {
      for (int row = begin; row < end; ++row) body(row);
    });
  }
  // body(from, to) over pieces of [0, n), where an element is as much work as `cost` of them.
  template <class Body>
  void ForElements(int64_t n, int cost, const Body& body) {
    executor_.ParallelFor(static_cast<int>(CeilDiv(n, kPieceElements)), Grain(kGrainElements, cost * kPieceElements),
                          [&](int begin, int end) { body(begin * kPieceElements, std::min(end * kPieceElements, n)); });
  }
  void Score(const RouterShape& shape, std::span<float> logits) const;
  void RotateParts(const RopeShape& shape, float* row, float position, const float* inv_freq) const;

  const std::string_view name_;
  const KernelTable& kernels_;
  Executor& executor_;
};

// The first of all pairs, then the second of all.
void CopyPairs(const float* x, int dims, bool interleaved, float* y) {
  if (!interleaved) {
    std::copy_n(x, dims, y);
    return;
  }
  const int half = dims / 2;
  for (int i = 0; i < half; ++i) {
    y[i] = x[2 * i];
    y[half + i] = x[2 * i + 1];
  }
}

constexpr size_t kSums = 8;

// term(element) into partial sum i mod 8.
template <class Term>
float LaneSumOf(std::span<const float> x, const Term& term) {
  float sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= x.size(); i += kSums) {
    for (size_t lane = 0; lane < kSums; ++lane) sums[lane] += term(x[i + lane]);
  }
  for (size_t lane = 0; i + lane < x.size(); ++lane) sums[lane] += term(x[i + lane]);
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

void LayerNormRow(std::span<const float> x, const Norm& norm, float* y) {
  const auto count = static_cast<float>(x.size());
  const float mean = LaneSumOf(x, [](float number) { return number; }) / count;
  const float squares = LaneSumOf(x, [&](float number) { return (number - mean) * (number - mean); });
  const float scale = 1.0f / std::sqrt(squares / count + norm.eps);
  for (size_t i = 0; i < x.size(); ++i) y[i] = (x[i] - mean) * scale * norm.weight[i] + norm.bias[i];
}

// Activations are handed out to be read; the backend that laid them out writes them.
template <class T>
T* Mutable(const T* at, int64_t offset) {
  return at == nullptr ? nullptr : const_cast<T*>(at) + offset;
}

void CpuBackend::Embed(const MatrixView& matrix, std::span<const TokenId> tokens, float* y) {
  ForRows(static_cast<int>(tokens.size()), matrix.cols, [&](int row) {
    DecodeRow(matrix.format, matrix.data, matrix.cols, tokens[row].value(), y + int64_t{row} * matrix.cols);
  });
}

void CpuBackend::GatherRows(const float* x, int cols, std::span<const int32_t> rows, float* y) {
  ForRows(static_cast<int>(rows.size()), cols,
          [&](int row) { std::copy_n(x + int64_t{rows[row]} * cols, cols, y + int64_t{row} * cols); });
}

Activations CpuBackend::Prepare(const float* x, int tokens, int cols, int64_t stride, InputForms forms,
                                std::span<std::byte> storage) {
  const Activations all = ActivationsIn(storage, tokens, cols, forms);
  const int64_t blocks = Blocks(cols);
  ForRows(tokens, cols, [&](int token) {
    kernels_.prepare({.x = x + token * stride,
                      .cols = cols,
                      .values = Mutable(all.values, token * blocks * kBlockColumns),
                      .codes = Mutable(all.codes, token * blocks * kBlockColumns),
                      .scales = Mutable(all.scales, token * blocks),
                      .sums = Mutable(all.sums, token * blocks)});
  });
  return all;
}

Activations CpuBackend::Gather(const Activations& from, std::span<const int32_t> rows, std::span<std::byte> storage) {
  const int count = static_cast<int>(rows.size());
  const Activations to = ActivationsIn(storage, count, from.cols, from.forms());
  const int64_t blocks = Blocks(from.cols);
  ForRows(count, from.cols, [&](int row) {
    const auto copy = [&](const auto* source, const auto* target, int64_t width) {
      if (source != nullptr) std::copy_n(source + rows[row] * width, width, Mutable(target, row * width));
    };
    copy(from.values, to.values, blocks * kBlockColumns);
    copy(from.codes, to.codes, blocks * kBlockColumns);
    copy(from.scales, to.scales, blocks);
    copy(from.sums, to.sums, blocks);
  });
  return to;
}

// A layer norm has no instructions of its own: the compiler's vectors add the same partial sums.
void CpuBackend::Normalize(const Norm& norm, const float* x, int rows, int cols, float* y) {
  ForRows(rows, cols, [&](int row) {
    const float* const from = x + int64_t{row} * cols;
    float* const to = y + int64_t{row} * cols;
    if (norm.bias == nullptr) return kernels_.rms_norm(from, norm.weight, norm.eps, cols, to);
    LayerNormRow({from, static_cast<size_t>(cols)}, norm, to);
  });
}

void CpuBackend::Scale(float* x, float scale, int64_t n) {
  ForElements(n, 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) x[i] *= scale;
  });
}

void CpuBackend::Rope(const RopeShape& shape, float* x, int tokens, int64_t stride, const int32_t* positions,
                      const float* inv_freq) {
  const bool whole = shape.rotary_dims == shape.head_dim && !shape.interleaved;
  ForRows(tokens, int64_t{shape.heads} * shape.head_dim, [&](int token) {
    float* row = x + token * stride;
    const auto position = static_cast<float>(positions[token]);
    for (int head = 0; shape.magnitude != 1 && head < shape.heads; ++head) {
      for (int i = 0; i < shape.rotary_dims; ++i) row[int64_t{head} * shape.head_dim + i] *= shape.magnitude;
    }
    if (whole) {
      kernels_.rope({row, shape.heads, shape.head_dim, position, inv_freq});
    } else {
      RotateParts(shape, row, position, inv_freq);
    }
  });
}

// The parts of as many heads as there is room for lie together meanwhile, so that their angles are computed once.
void CpuBackend::RotateParts(const RopeShape& shape, float* row, float position, const float* inv_freq) const {
  std::array<float, 4 * kMostHeadDim> parts;
  const int dims = shape.rotary_dims;
  const int together = static_cast<int>(parts.size()) / dims;
  for (int first = 0; first < shape.heads; first += together) {
    const int heads = std::min(together, shape.heads - first);
    const auto head = [&](int i) { return row + int64_t{first + i} * shape.head_dim; };
    for (int i = 0; i < heads; ++i) CopyPairs(head(i), dims, shape.interleaved, &parts[static_cast<size_t>(i) * dims]);
    kernels_.rope({parts.data(), heads, dims, position, inv_freq});
    for (int i = 0; i < heads; ++i) std::copy_n(&parts[static_cast<size_t>(i) * dims], dims, head(i));
  }
}

void CpuBackend::DeltaGates(float* a, float* b, const float* bias, const float* decay_rates, int rows, int heads, int decays) {
  ForRows(rows * heads, int64_t{4} * kExponentialCost * decays, [&](int row_and_head) {
    const int head = row_and_head % heads;
    float* const decay = a + int64_t{row_and_head} * decays;
    const float* const own_bias = bias + int64_t{head} * decays;
    for (int i = 0; i < decays; ++i) decay[i] = Exp(decay_rates[head] * Softplus(decay[i] + own_bias[i]));
    b[row_and_head] = Sigmoid(b[row_and_head]);
  });
}

void CpuBackend::StepSizes(float* steps, const float* bias, const float* decay_rates, int rows, int heads, float* decays) {
  ForRows(rows, int64_t{4} * kExponentialCost * heads, [&](int row) {
    for (int head = 0; head < heads; ++head) {
      const int64_t at = int64_t{row} * heads + head;
      steps[at] = Softplus(steps[at] + bias[head]);
      decays[at] = Exp(decay_rates[head] * steps[at]);
    }
  });
}

// Without instructions of its own: the compiler's vectors round alike.
void CpuBackend::Multiply(float* x, const float* by, int64_t n) {
  ForElements(n, 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) x[i] *= by[i];
  });
}

void CpuBackend::SigmoidGate(float* x, const float* gate, int64_t n) {
  ForElements(n, kExponentialCost, [&](int64_t from, int64_t to) { kernels_.sigmoid_gate(x + from, gate + from, to - from); });
}

// Few gates have a head each, so many numbers.
void CpuBackend::SoftplusGate(float* x, const float* gates, int64_t n, int width) {
  ForElements(n, kExponentialCost + width, [&](int64_t from, int64_t to) {
    for (int64_t gate = from; gate < to; ++gate) {
      const float factor = Softplus(gates[gate]);
      for (int64_t i = gate * width; i < (gate + 1) * width; ++i) x[i] *= factor;
    }
  });
}

void CpuBackend::Activate(const FfnActivation& activation, const float* gate, const float* up, int64_t n, float* out) {
  const bool gated = HasGate(activation.function);
  ForElements(n, gated ? kExponentialCost : 1, [&](int64_t from, int64_t to) {
    const int64_t count = to - from;
    switch (activation.function) {
      case GateFunction::kSwiGlu:
        return kernels_.swi_glu(gate + from, up + from, count, out + from);
      case GateFunction::kClampedSwiGlu:
        return kernels_.clamped_swi_glu(activation.clamp, gate + from, up + from, count, out + from);
      case GateFunction::kGeGlu:
        return kernels_.ge_glu(gate + from, up + from, count, out + from);
      case GateFunction::kSquaredRelu:
        if (out != up) std::copy_n(up + from, count, out + from);
        return kernels_.squared_relu(out + from, count);
      case GateFunction::kRelu:  // the compiler's vectors compare alike
        for (int64_t i = from; i < to; ++i) out[i] = up[i] < 0 ? 0.0f : up[i];
        return;
      case GateFunction::kReGlu:
        for (int64_t i = from; i < to; ++i) out[i] = (gate[i] < 0 ? 0.0f : gate[i]) * up[i];
        return;
    }
  });
}

void CpuBackend::SoftCap(float* x, float cap, int64_t n) {
  ForElements(n, kExponentialCost, [&](int64_t from, int64_t to) { kernels_.soft_cap(x + from, cap, to - from); });
}

void CpuBackend::Softmax(float* x, int rows, int cols) {
  ForRows(rows, int64_t{kExponentialCost} * cols, [&](int row) { kernels_.softmax(x + int64_t{row} * cols, cols); });
}

void CpuBackend::Route(const RouterShape& shape, float* logits, int rows, ExpertChoice* choices) {
  const size_t experts = shape.experts;
  const size_t top_k = shape.top_k;
  ForRows(rows, int64_t{kExponentialCost} * shape.experts, [&](int row) {
    const std::span<float> scores(logits + row * experts, experts);
    Score(shape, scores);
    ChooseExperts(shape, scores, std::span(choices + row * top_k, top_k));
  });
}

// What chooses by logits ranks by them, which a softmax keeps in order.
void CpuBackend::Rank(const RouterShape& shape, float* logits, int rows) {
  ForRows(rows, int64_t{kExponentialCost} * shape.experts, [&](int row) {
    const std::span<float> scores(logits + int64_t{row} * shape.experts, shape.experts);
    if (ChoosesByLogit(shape.scoring)) {
      kernels_.softmax(scores.data(), shape.experts);
    } else {
      Score(shape, scores);
    }
    RankExperts(shape, scores);
  });
}

void CpuBackend::Score(const RouterShape& shape, std::span<float> logits) const {
  if (shape.scoring == RouterScoring::kSoftmax) {
    kernels_.softmax(logits.data(), shape.experts);
  } else {
    ScoreExperts(shape, logits);
  }
}

// Pieces of rows, so that a row alone is many.
void CpuBackend::Combine(const CombineJob& job) {
  const int pieces = static_cast<int>(CeilDiv(job.cols, kPieceElements));
  const int terms = job.top_k + (job.shared != nullptr ? 1 : 0);
  executor_.ParallelFor(job.rows * pieces, Grain(kGrainElements, terms * kPieceElements), [&](int begin, int end) {
    for (int piece = begin; piece < end; ++piece) {
      const int64_t row = piece / pieces;
      const int64_t first = piece % pieces * kPieceElements;
      const int64_t count = std::min(job.cols - first, kPieceElements);
      float* x = job.x + row * job.cols + first;
      if (!job.adds) std::fill_n(x, count, 0.0f);
      for (int64_t slot = row * job.top_k; slot < (row + 1) * job.top_k; ++slot) {
        const int32_t place = job.places[slot];
        if (place == kNoOutput) continue;
        float weight = job.choices[slot].probability * job.scale;
        if (job.expert_scales != nullptr) weight *= job.expert_scales[job.choices[slot].expert];
        kernels_.add_scaled(x, job.outputs + int64_t{place} * job.cols + first, weight, count);
      }
      if (job.shared == nullptr) continue;
      const float weight = job.shared_gate == nullptr ? 1.0f : Sigmoid(job.shared_gate[row]);
      kernels_.add_scaled(x, job.shared + row * job.cols + first, weight * job.shared_scale, count);
    }
  });
}

void CpuBackend::AddScaled(float* y, const float* x, float scale, int64_t n) {
  ForElements(n, 1, [&](int64_t from, int64_t to) { kernels_.add_scaled(y + from, x + from, scale, to - from); });
}

void CpuBackend::Add(float* y, const float* x, int64_t n) {
  ForElements(n, 1, [&](int64_t from, int64_t to) { kernels_.add(y + from, x + from, to - from); });
}

}  // namespace

std::unique_ptr<ComputeBackend> MakeCpuBackend(std::string_view name, const KernelTable& kernels, Executor& executor) {
  return std::make_unique<CpuBackend>(name, kernels, executor);
}

}  // namespace moed
