// Every kernel with each of its accesses watched: inside of its arrays, aligned, never of what nobody wrote, never in a race. And
// the bits of "scalar" once more, since each array has exactly the bytes that the operation says. Where there is a CUDA device,
// the compiled kernels on it as well, with the same arrays in pinned memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/kernels/cuda/emulation/runtime.h"
#include "core/kernels/cuda_backend.h"
#include "core/kernels/cuda_row.h"
#include "tests/kernels/cuda/traffic/product_traffic.h"
#include "tests/kernels/fixtures.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The backend under test beside the scalar one. Memory that kernels may touch is taken from its device.
class KernelsBesideScalar {
 protected:
  KernelsBesideScalar(std::string_view name, const cuda::KernelSet& kernels, std::unique_ptr<DeviceRuntime> runtime)
      : runtime_(runtime.get()), backend_(MakeCudaBackend(name, kernels, std::move(runtime), executor_).value()) {}

  // Of exactly these numbers, for both backends.
  template <class T>
  T* Keep(const std::vector<T>& numbers) {
    buffers_.push_back(runtime_->Allocate(numbers.size() * sizeof(T), MemoryKind::kPinned).value());
    std::memcpy(buffers_.back().data(), numbers.data(), numbers.size() * sizeof(T));
    return reinterpret_cast<T*>(buffers_.back().data());
  }
  std::span<std::byte> Storage(size_t bytes) { return {Keep(std::vector<std::byte>(bytes)), bytes}; }
  MatrixView Keep(const PackedMatrix& matrix) {
    MatrixView view = matrix.view;
    view.data = Keep(matrix.bytes);
    return view;
  }

  // operation(backend, x): what becomes of a copy of x on either.
  template <class T, class Operation>
  void Compare(const std::vector<T>& x, const Operation& operation) {
    T* const expected = Keep(x);
    T* const found = Keep(x);
    operation(*scalar_, expected);
    operation(*backend_, found);
    ASSERT_EQ(backend_->Fence(), absl::OkStatus());  // the first fault
    if constexpr (std::is_same_v<T, float>) {
      EXPECT_TRUE(SameBits({found, x.size()}, {expected, x.size()}));
    } else {
      EXPECT_EQ(std::memcmp(found, expected, x.size() * sizeof(T)), 0);
    }
  }
  void CompareProducts(FormatId format, int rows, int cols, int tokens) {
    SCOPED_TRACE(StrCat(FormatOf(format).name, ", ", rows, "x", cols, ", ", tokens, " tokens"));
    const MatrixView weights = Keep(RandomMatrix(format, rows, cols, 3));
    const InputForms forms = InputForms::Of({format});
    const float* const x = Keep(Gaussian(static_cast<size_t>(tokens) * cols, 4));
    const float* const bias = Keep(Gaussian(rows, 5));
    const auto compare = [&](const MatMulJob& job) {
      Compare(std::vector<float>(static_cast<size_t>(tokens) * rows, 0.3f), [&](ComputeBackend& backend, float* y) {
        const Activations input = backend.Prepare(x, tokens, cols, cols, forms, Storage(ActivationBytes(tokens, cols, forms)));
        MatMulJob with = job;
        with.input = &input;
        with.output = y;
        backend.MatMul({&with, 1});
      });
    };
    compare({.weights = weights, .output_stride = rows});
    compare({.weights = weights, .output_stride = rows, .bias = bias, .scale = 0.7f, .adds = true});
    if (tokens > 1) return;
    MatMulJob chosen = {.weights = weights, .output_stride = rows, .bias = Keep(Gaussian(size_t{2} * rows, 6))};
    chosen.weights.data = nullptr;
    chosen.choice = Keep(std::vector<ExpertChoice>{{.expert = 1}});
    chosen.matrices = {Keep(std::vector<const std::byte*>{nullptr, weights.data}), 2};
    compare(chosen);
  }

  InlineExecutor executor_;
  std::unique_ptr<ComputeBackend> scalar_ = MakeComputeBackend("scalar", executor_).value();
  DeviceRuntime* const runtime_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<ComputeBackend> backend_;
};

std::unique_ptr<DeviceRuntime> Watched() { return emulation::MakeEmulatedRuntime({}); }

class WatchedKernels : public KernelsBesideScalar, public ::testing::Test {
 protected:
  WatchedKernels() : KernelsBesideScalar("cuda-emulated", cuda::kEmulatedKernels, Watched()) {}
};

struct TestedKernels {
  const char* name;
  const cuda::KernelSet* kernels;
  std::unique_ptr<DeviceRuntime> (*open)();
};
// In emulation, every access watched; and on the CUDA device where there is one.
std::vector<TestedKernels> AllKernels() {
  std::vector<TestedKernels> all = {{"emulated", &cuda::kEmulatedKernels, Watched}};
  if (OpenCudaDevice().ok()) all.push_back({"device", CompiledKernels(), [] { return OpenCudaDevice().value(); }});
  return all;
}

class CudaKernels : public KernelsBesideScalar, public ::testing::TestWithParam<TestedKernels> {
 protected:
  CudaKernels() : KernelsBesideScalar(GetParam().name, *GetParam().kernels, GetParam().open()) {}
};

TEST_P(CudaKernels, Products) {
  for (const Format& format : Formats()) {
    for (const int tokens : {1, 3, 11}) CompareProducts(format.id, 19, ColumnsFor(format, 100), tokens);
  }
}

// Eight rows of the matrix at a time. A row whose numbers are too large or too small for 16 bits is as near as others are.
TEST_P(CudaKernels, ProductsOfHalvesAreNear) {
  if (!backend_->OpenFastMatmul().ok()) GTEST_SKIP() << "no library for them";
  constexpr int kRows = 19, kTokens = 5;
  for (const Format& format : Formats()) {
    SCOPED_TRACE(format.name);
    const int cols = ColumnsFor(format, 100);
    const InputForms forms = InputForms::Of({format.id});
    std::vector<float> x = Gaussian(static_cast<size_t>(kTokens) * cols, 4);
    for (int i = 0; i < cols; ++i) x[i] *= 0x1p20f, x[cols + i] *= 0x1p-40f;
    const MatrixView weights = Keep(RandomMatrix(format.id, kRows, cols, 3));
    const float* const input = Keep(x);
    const float* const bias = Keep(std::vector<float>(kRows));
    const auto product = [&](ComputeBackend& backend, std::span<std::byte> halves, float scale, bool adds) {
      const Activations prepared = backend.Prepare(input, kTokens, cols, cols, forms, Storage(ActivationBytes(kTokens, cols)));
      float* const y = Keep(std::vector<float>(kTokens * kRows));
      MatMulJob job = {weights, &prepared, y, kRows, bias, scale, adds};
      job.halves = halves;
      backend.MatMul({&job, 1});
      EXPECT_EQ(backend.Fence(), absl::OkStatus());
      return y;
    };
    for (const bool adds : {false, true}) {
      const std::span<std::byte> halves = Storage(ComputeBackend::HalfProductBytes(kTokens, 8, cols));
      const float* const found = product(*backend_, halves, 0.7f, adds);
      const float* const exact = product(*scalar_, {}, 0.7f, adds);
      for (int token = 0; token < kTokens; ++token) {
        double squares = 0, apart = 0;
        for (int row = 0; row < kRows; ++row) {
          const double expected = exact[token * kRows + row];
          squares += expected * expected;
          apart += (found[token * kRows + row] - expected) * (found[token * kRows + row] - expected);
        }
        EXPECT_LE(std::sqrt(apart), 2e-3 * std::sqrt(squares)) << "token " << token;
      }
    }
    EXPECT_TRUE(
        SameBits({product(*backend_, {}, 1, false), kTokens * kRows}, {product(*scalar_, {}, 1, false), kTokens * kRows}));
  }
}

// Chunks of a panel that end within it, and panels that begin between two units of 16 bytes.
TEST_P(CudaKernels, ProductsOfPanelsAnywhere) {
  for (const Format& format : Formats()) {
    for (const int blocks : {1, 2, 15, 31}) CompareProducts(format.id, 35, blocks * format.block_columns, 1);
    CompareProducts(format.id, 19, 15 * format.block_columns, 9);
  }
}

// Of the weights hardly more is moved than they have, 16 bytes a lane.
TEST(Weights, AreReadOnceAndInWideRequests) {
  for (const Format& format : Formats()) {
    for (const int tokens : {1, 8}) {
      const ProductTraffic traffic = TrafficOfProduct(format, tokens);
      EXPECT_GE(traffic.moved_over_matrix(), 1.0) << format.name << ", " << tokens << " tokens";
      EXPECT_LE(traffic.moved_over_matrix(), 1.05) << format.name << ", " << tokens << " tokens";
      EXPECT_EQ(traffic.wide_share(), 1.0) << format.name << ", " << tokens << " tokens";
    }
  }
}

TEST_P(CudaKernels, EmbedAndGather) {
  const std::vector<TokenId> tokens = {TokenId(18), TokenId(0), TokenId(7)};
  for (const Format& format : Formats()) {
    const int cols = ColumnsFor(format, 70);
    const MatrixView matrix = Keep(RandomMatrix(format.id, 19, cols, 3));
    Compare(std::vector<float>(tokens.size() * cols),
            [&](ComputeBackend& backend, float* y) { backend.Embed(matrix, tokens, y); });
  }
  const std::vector<int32_t> rows = {4, 0, 4};
  const float* const x = Keep(Gaussian(5 * 70, 1));
  Compare(std::vector<float>(3 * 70), [&](ComputeBackend& backend, float* y) { backend.GatherRows(x, 70, rows, y); });
  Compare(std::vector<std::byte>(ActivationBytes(3, 70)), [&](ComputeBackend& backend, std::byte* y) {
    const Activations all = backend.Prepare(x, 5, 70, 70, kAllForms, Storage(ActivationBytes(5, 70)));
    backend.Gather(all, rows, {y, ActivationBytes(3, 70)});
  });
}

// A row that its threads hold, rows of few threads, and a row that is longer than what they hold.
TEST_P(CudaKernels, Rows) {
  for (const auto& sizes : std::vector<std::pair<int, int>>{{2, 1100}, {33, 70}, {33, 520}, {1, 8240}}) {
    const int rows = sizes.first, cols = sizes.second;
    SCOPED_TRACE(StrCat(rows, "x", cols));
    const float* const weight = Keep(Gaussian(cols, 2));
    const float* const bias = Keep(Gaussian(cols, 3));
    const std::vector<float> x = Gaussian(static_cast<size_t>(rows) * cols, 1);
    Compare(x, [&](ComputeBackend& b, float* y) { b.Normalize({.weight = weight, .eps = 1e-6f}, y, rows, cols, y); });
    Compare(x, [&](ComputeBackend& b, float* y) { b.Normalize({.eps = 1e-6f}, y, rows, cols, y); });
    Compare(x, [&](ComputeBackend& b, float* y) { b.Normalize({weight, bias, 1e-6f}, y, rows, cols, y); });
    Compare(x, [&](ComputeBackend& b, float* y) { b.Softmax(y, rows, cols); });
  }
}

TEST_P(CudaKernels, Elements) {
  const int n = 3300;
  const std::vector<float> x = Gaussian(n, 1);
  const float* const other = Keep(Gaussian(n, 4));
  const std::vector<std::function<void(ComputeBackend&, float*)>> operations = {
      [&](ComputeBackend& b, float* y) { b.Scale(y, 0.3f, n); },
      [&](ComputeBackend& b, float* y) { b.Multiply(y, other, n); },
      [&](ComputeBackend& b, float* y) { b.SigmoidGate(y, y, n); },
      [&](ComputeBackend& b, float* y) { b.Activate(kSwiGlu, y, other, n, y); },
      [&](ComputeBackend& b, float* y) {
        b.Activate({GateFunction::kClampedSwiGlu, {1.702f, 7.0f}}, other, y, n, y);
      },
      [&](ComputeBackend& b, float* y) { b.Activate(kGeGlu, y, other, n, y); },
      [&](ComputeBackend& b, float* y) { b.Activate(kSquaredRelu, nullptr, y, n, y); },
      [&](ComputeBackend& b, float* y) { b.Activate(kRelu, nullptr, y, n, y); },
      [&](ComputeBackend& b, float* y) { b.SoftCap(y, 1.5f, n); },
      [&](ComputeBackend& b, float* y) { b.AddScaled(y, other, 0.37f, n); },
      [&](ComputeBackend& b, float* y) { b.Add(y, other, n); },
  };
  for (const auto& operation : operations) Compare(x, operation);
}

TEST_P(CudaKernels, WhatIsPreparedAtOnce) {
  const int rows = 3, cols = 300;
  const size_t bytes = ActivationBytes(rows, cols);
  const float* const x = Keep(Gaussian(rows * cols, 1));
  const float* const weight = Keep(Gaussian(cols, 2));
  const float* const bias = Keep(Gaussian(cols, 3));
  for (const Norm& norm : {Norm{.weight = weight, .eps = 1e-6f}, Norm{weight, bias, 1e-6f}}) {
    Compare(std::vector<std::byte>(bytes), [&](ComputeBackend& backend, std::byte* prepared) {
      backend.NormalizeAndPrepare(norm, x, rows, cols, Keep(std::vector<float>(rows * cols)), kAllForms, {prepared, bytes});
    });
  }
  for (const GateFunction function : {GateFunction::kSwiGlu, GateFunction::kClampedSwiGlu, GateFunction::kGeGlu,
                                      GateFunction::kSquaredRelu, GateFunction::kRelu}) {
    Compare(std::vector<std::byte>(bytes), [&](ComputeBackend& backend, std::byte* prepared) {
      const float* const gate = HasGate(function) ? x : nullptr;
      backend.ActivateAndPrepare({function, {1.702f, 7.0f}}, gate, Keep(Gaussian(rows * cols, 4)), rows, cols, kAllForms,
                                 {prepared, bytes});
    });
  }
}

// Of many heads more than shared memory holds at once, so that it is used again.
TEST_P(CudaKernels, Rope) {
  const std::vector<int32_t> positions = {0, 77, 4096};
  const float* const inv_freq = Keep(std::vector<float>{1, 0.3f, 0.1f, 0.01f});
  for (const bool interleaved : {false, true}) {
    for (const int heads : {5, 600}) {
      Compare(Gaussian(static_cast<size_t>(3) * heads * 10, 1), [&](ComputeBackend& backend, float* x) {
        backend.Rope({.heads = heads, .head_dim = 10, .rotary_dims = 8, .interleaved = interleaved}, x, 3, int64_t{10} * heads,
                     positions.data(), inv_freq);
      });
    }
  }
}

// Queries, then what the pages hold.
TEST_P(CudaKernels, Heads) {
  const int rows = 3;
  const float* const inv_freq = Keep(std::vector<float>{1, 0.3f, 0.1f, 0.01f});
  const float* const norm = Keep(Gaussian(40, 4));
  const float* const values = Keep(Gaussian(rows * 80, 3));
  for (int format = 0; format < kKvFormatCount; ++format) {
    const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = 40, .kv_format = static_cast<KvFormat>(format)};
    const auto page_bytes = static_cast<size_t>(KvPages::PageBytes(shape));
    for (const HeadTransform& transform : {HeadTransform{}, HeadTransform{.rotary_dims = 8, .inv_freq = inv_freq},
                                           HeadTransform{norm, norm, 1e-6f, false, 8, true, inv_freq},
                                           HeadTransform{norm, nullptr, 1e-6f, true, 8, false, inv_freq}}) {
      std::vector<float> all = Gaussian(rows * 240, 1);
      all.resize(all.size() + 2 * page_bytes / sizeof(float));
      Compare(all, [&](ComputeBackend& backend, float* query) {
        std::byte* const first = reinterpret_cast<std::byte*>(query + rows * 240);
        std::byte* const pages[] = {first, first + page_bytes};
        const KvRun runs[] = {{.pages = pages, .position = 62, .tokens = rows}};
        const std::vector<int32_t> positions = {62, 63, 64};
        backend.TransformAndStore(shape, transform, runs, positions.data(), query, Keep(Gaussian(rows * 80, 2)), values);
      });
    }
  }
}

// By a block of threads for all positions of its rows, and by several; of one piece of positions and of more.
TEST_P(CudaKernels, KeysAndValues) {
  const int positions = 530;
  const std::span<float> none, enough = {Keep(std::vector<float>(30 * 3 * (256 + 8 + 40))), 30 * 3 * (256 + 8 + 40)};
  for (int format = 0; format < kKvFormatCount; ++format) {
    for (const int window : {0, 9, 300}) {
      const AttentionShape shape{.heads = 6,
                                 .kv_heads = 2,
                                 .head_dim = 40,
                                 .scale = 0.3f,
                                 .kv_format = static_cast<KvFormat>(format),
                                 .window = window,
                                 .sinks = window == 0 ? nullptr : Keep(Gaussian(6, 9)),
                                 .bias = {window == 9 ? nullptr : Keep(Gaussian(6 * 41, 10)), 20}};
      const float* const keys = Keep(Gaussian(positions * 80, 1));
      const float* const values = Keep(Gaussian(positions * 80, 2));
      const float* const query = Keep(Gaussian(5 * 240, 3));
      for (const auto& way : {std::pair(none, false), {enough, false}, {enough, true}})
        Compare(std::vector<float>(5 * 240), [&](ComputeBackend& backend, float* output) {
          std::vector<std::byte*> pages;
          for (int i = 0; i < 9; ++i) pages.push_back(Storage(KvPages::PageBytes(shape)).data());
          const KvRun all[] = {{.pages = pages, .position = 0, .tokens = positions}};
          backend.StoreKv(shape, all, keys, values);
          const bool within = window == 0;  // of other positions
          const KvRun runs[] = {{.pages = pages, .position = 3, .tokens = 1, .seen = within ? positions : 0},
                                {.pages = pages, .position = 511, .tokens = 4, .first = within ? 262 : 0}};
          const KvRun of_one_piece[] = {{.pages = pages, .position = 30, .tokens = 4},
                                        {.pages = pages, .position = 255, .tokens = 1}};
          std::vector<float> own(ComputeBackend::AttentionScratchFloats(1, positions));  // of "scalar"
          backend.Attention(shape, way.second ? of_one_piece : runs, query, output, &backend == scalar_.get() ? own : way.first);
        });
    }
  }
}

TEST_P(CudaKernels, Latents) {
  const int positions = 270;
  const std::span<float> none, enough = {Keep(std::vector<float>(30 * 2 * (256 + 8 + 24))), 30 * 2 * (256 + 8 + 24)};
  for (int format = 0; format < kKvFormatCount; ++format) {
    const LatentShape shape{.heads = 10, .rank = 24, .rotary_dims = 6, .scale = 0.3f, .kv_format = static_cast<KvFormat>(format)};
    const float* const latents = Keep(Gaussian(positions * 24, 1));
    const float* const keys = Keep(Gaussian(positions * 6, 2));
    const float* const rotated = Keep(Gaussian(3 * 10 * 6, 3));
    for (const std::span<float> scores : {none, enough})
      Compare(Gaussian(3 * 240, 4), [&](ComputeBackend& backend, float* x) {
        std::vector<std::byte*> pages;
        for (int i = 0; i < 5; ++i) pages.push_back(Storage(64 * LatentRowBytes(shape.kv_format, 24, 6)).data());
        const KvRun all[] = {{.pages = pages, .position = 0, .tokens = positions}};
        backend.StoreLatent(shape, all, latents, keys);
        const KvRun runs[] = {{.pages = pages, .position = 3, .tokens = 1}, {.pages = pages, .position = 260, .tokens = 2}};
        std::vector<float> own(ComputeBackend::LatentScratchFloats(1, positions));
        backend.AttendLatent(shape, runs, x, rotated, 6, x, &backend == scalar_.get() ? own : scores);
      });
  }
}

TEST_P(CudaKernels, States) {
  const int rows = 4, heads = 4;
  const float* const gates = Keep(std::vector<float>(rows * heads, 0.4f));
  const float* const skip = Keep(Gaussian(heads, 1));
  const float* const rates = Keep(std::vector<float>(heads, -0.3f));
  const float* const weights = Keep(Gaussian(4 * 70, 2));
  const float* const x = Keep(Gaussian(rows * 200, 3));
  // The state of a sequence, then what comes out.
  const auto compare = [&](int64_t state_floats, int64_t output_floats, const auto& operation) {
    Compare(Gaussian(state_floats + output_floats, 5), [&](ComputeBackend& backend, float* state) {
      const StateRun runs[] = {{.state = state, .position = 6, .tokens = rows}};
      operation(backend, runs, state + state_floats);
    });
  };
  const DeltaRuleShape delta{.key_heads = 2, .value_heads = heads, .key_dim = 5, .value_dim = 40, .scale = 0.3f};
  const StateSpaceShape space{.key_heads = 2, .value_heads = heads, .key_dim = 5, .value_dim = 40};
  ASSERT_EQ(delta.row(), 180);
  compare(heads * 200, rows * 160, [&](ComputeBackend& backend, std::span<const StateRun> runs, float* output) {
    backend.DeltaRule(delta, runs, x, gates, gates, output);
  });
  compare(heads * 200, rows * 160, [&](ComputeBackend& backend, std::span<const StateRun> runs, float* output) {
    backend.StateSpace(space, runs, x, gates, gates, skip, output);
  });
  compare(3 * 70, rows * 70, [&](ComputeBackend& backend, std::span<const StateRun> runs, float* y) {
    backend.Convolve({.channels = 70, .taps = 4, .bias = x}, runs, x, weights, y);
  });
  Compare(Gaussian(2 * rows * heads, 6), [&](ComputeBackend& backend, float* a) {
    backend.DeltaGates(a, a + rows * heads, skip, rates, rows, heads);
    backend.StepSizes(a, skip, rates, rows, heads, a + rows * heads);
  });
}

TEST_P(CudaKernels, Experts) {
  const int rows = 3, experts = 34, top_k = 4, cols = 50;
  const RouterShape shape{.experts = experts,
                          .top_k = top_k,
                          .normalize = true,
                          .scoring = RouterScoring::kSigmoid,
                          .correction = Keep(Gaussian(experts, 1)),
                          .groups = 2,
                          .kept_groups = 1,
                          .epsilon = 1e-6f};
  const std::vector<float> logits = Gaussian(rows * experts, 2, 3.0f);
  float* const own = Keep(logits);
  Compare(std::vector<ExpertChoice>(rows * top_k), [&](ComputeBackend& backend, ExpertChoice* choices) {
    std::memcpy(own, logits.data(), logits.size() * sizeof(float));
    backend.Route(shape, own, rows, choices);
  });
  Compare(logits, [&](ComputeBackend& backend, float* x) { backend.Rank(shape, x, rows); });
  Compare(logits, [&](ComputeBackend& backend, float* x) { backend.Rank({.experts = experts, .top_k = top_k}, x, rows); });

  std::vector<int32_t> places(rows * top_k);
  std::iota(places.begin(), places.end(), 0);
  places[5] = kNoOutput;
  const CombineJob job{.rows = rows,
                       .cols = cols,
                       .top_k = top_k,
                       .choices = Keep(std::vector<ExpertChoice>(rows * top_k, {.expert = 3, .probability = 0.3f})),
                       .expert_scales = Keep(Gaussian(experts, 3)),
                       .places = places,
                       .outputs = Keep(Gaussian(rows * top_k * cols, 4)),
                       .shared = Keep(Gaussian(rows * cols, 5)),
                       .shared_gate = Keep(Gaussian(rows, 6))};
  Compare(Gaussian(rows * cols, 7), [&](ComputeBackend& backend, float* x) {
    CombineJob with = job;
    with.x = x;
    backend.Combine(with);
  });
}

// Without a wait between, or after the host has changed them.
TEST_P(CudaKernels, WhatARouterChose) {
  const int rows = 3, experts = 6, top_k = 2, cols = 40;
  const std::vector<int32_t> places = {0, 1, 2, 3, 4, 5};
  const float* const outputs = Keep(Gaussian(rows * top_k * cols, 4));
  std::vector<const std::byte*> matrices;
  for (int expert = 0; expert < experts; ++expert) {
    matrices.push_back(Keep(RandomMatrix(FormatId::kQ4, cols, cols, static_cast<uint32_t>(expert))).data);
  }
  const InputForms forms = InputForms::Of({FormatId::kQ4});
  for (const int waits : {0, 1}) {
    const std::vector<float> logits = Gaussian(rows * experts, 2, 3.0f);
    Compare(Gaussian(rows * (1 + top_k) * cols, 7), [&](ComputeBackend& backend, float* x) {
      auto* const choices = Keep(std::vector<ExpertChoice>(rows * top_k));
      float* const scores = Keep(logits);
      backend.Route({.experts = experts, .top_k = top_k}, scores, 2, choices);
      // Once more for the row in the middle: the three rows' choices are of three operations.
      backend.Route({.experts = experts, .top_k = top_k}, scores + 2 * experts, 1, choices + top_k);
      backend.Route({.experts = experts, .top_k = top_k}, scores, 1, choices + 2 * top_k);
      if (waits > 0) {
        ASSERT_EQ(backend.Fence(), absl::OkStatus());
        choices[top_k].expert = 0;
      }
      backend.Combine(
          {.rows = rows, .cols = cols, .top_k = top_k, .choices = choices, .places = places, .outputs = outputs, .x = x});
      const Activations input = backend.Prepare(outputs, 1, cols, cols, forms, Storage(ActivationBytes(1, cols, forms)));
      std::vector<MatMulJob> jobs;
      for (int slot = 0; slot < rows * top_k; ++slot) {
        jobs.push_back({.weights = {FormatId::kQ4, cols, cols},
                        .input = &input,
                        .output = x + (rows + slot) * cols,
                        .output_stride = cols,
                        .choice = choices + slot,
                        .matrices = matrices});
      }
      backend.MatMul(jobs);
    });
  }
}

// Scores, choices and ranks of rows with ties, with experts that are masked, and with what is no number or infinite.
TEST_P(CudaKernels, RoutersOfAllShapes) {
  struct Sizes {
    int experts, groups, kept, most;
  };
  const int rows = 4;
  uint32_t seed = 0;
  for (const Sizes& sizes : {Sizes{5, 1, 1, 5}, Sizes{128, 1, 1, 9}, Sizes{48, 8, 3, 18}, Sizes{160, 40, 11, 40},
                             Sizes{256, 8, 4, 8}, Sizes{300, 1, 1, 10}}) {
    for (const RouterScoring scoring : {RouterScoring::kSoftmax, RouterScoring::kSigmoid, RouterScoring::kSparsemixer}) {
      for (const bool corrects : {false, true}) {
        for (const bool strange : {false, true}) {
          std::mt19937 random(++seed);
          const RouterShape shape{.experts = sizes.experts,
                                  .top_k = scoring == RouterScoring::kSparsemixer ? 2 : sizes.most,
                                  .normalize = random() % 2 == 0,
                                  .scoring = scoring,
                                  .correction = corrects ? Keep(Gaussian(sizes.experts, seed, 0.1f)) : nullptr,
                                  .groups = sizes.groups,
                                  .kept_groups = sizes.kept,
                                  .group_rank = random() % 2 == 0 ? GroupRank::kLargestKey : GroupRank::kTwoLargestKeys,
                                  .epsilon = 1e-6f,
                                  .jitter = 0.01f};
          SCOPED_TRACE(StrCat(sizes.experts, " experts, seed ", seed));
          const auto scores = static_cast<size_t>(rows) * sizes.experts;
          std::vector<float> x = Gaussian(scores, seed, 2.0f);
          for (size_t i = 0; i < scores / 2; ++i) x[i] = std::rint(x[i]);  // ties, and zeros of either sign
          for (size_t i = 0; i < scores; i += 5) x[i] = -INFINITY;
          if (strange) x[random() % scores] = NAN, x[random() % scores] = INFINITY;
          Compare(x, [&](ComputeBackend& backend, float* logits) { backend.Rank(shape, logits, rows); });
          x.resize(scores + size_t{2} * rows * shape.top_k);
          Compare(x, [&](ComputeBackend& backend, float* logits) {
            backend.Route(shape, logits, rows, reinterpret_cast<ExpertChoice*>(logits + scores));
          });
        }
      }
    }
  }
}

// From the second time on it is a graph, whatever lies in its arrays.
TEST_P(CudaKernels, AChainThatComesAgain) {
  const int rows = 2, cols = 96, n = rows * cols;
  const MatrixView weights = Keep(RandomMatrix(FormatId::kQ4, cols, cols, 3));
  const InputForms forms = InputForms::Of({FormatId::kQ4});
  float* const x = Keep(std::vector<float>(n));
  float* const y = Keep(std::vector<float>(n));
  const std::span<std::byte> storage = Storage(ActivationBytes(rows, cols, forms));
  for (uint32_t time = 0; time < 4; ++time) {
    const std::vector<float> given = Gaussian(n, time);
    std::vector<std::vector<float>> results;
    for (ComputeBackend* backend : {scalar_.get(), backend_.get()}) {
      std::ranges::copy(given, x);
      const Activations input = backend->NormalizeAndPrepare({.eps = 1e-6f}, x, rows, cols, y, forms, storage);
      const MatMulJob job{.weights = weights, .input = &input, .output = x, .output_stride = cols, .adds = true};
      backend->MatMul({&job, 1});
      backend->Activate(kSwiGlu, x, y, n, y);
      ASSERT_EQ(backend->Fence(), absl::OkStatus());
      results.emplace_back(y, y + n);
    }
    EXPECT_TRUE(SameBits(results[1], results[0])) << time;
  }
}

// Memory of the host's own is none that a device reaches here.
// And so does every later one.
TEST_F(WatchedKernels, TheFenceTellsAFaultAndItsPlace) {
  std::vector<float> elsewhere(8);
  backend_->Scale(elsewhere.data(), 2, 8);
  for (int fence = 0; fence < 2; ++fence) {
    const absl::Status failed = backend_->Fence();
    EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(failed.message()),
                AllOf(HasSubstr("the compute backend 'cuda-emulated' failed: "), HasSubstr("which no allocation holds")));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaKernels, ::testing::ValuesIn(AllKernels()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace moed
