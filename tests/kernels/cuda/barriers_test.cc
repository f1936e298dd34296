// Every barrier of the kernels is needed: where one is left out, what watches accesses finds a race or memory that nobody wrote.
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "core/kernels/cuda/emulation/runtime.h"
#include "core/kernels/cuda_backend.h"
#include "tests/kernels/fixtures.h"

namespace moed {
namespace {

using emulation::Place;

// The operations whose blocks of threads have barriers, each over several rounds of what its kernel stages.
class Operations {
 public:
  explicit Operations(std::optional<Place> without_barrier) {
    auto runtime = emulation::MakeEmulatedRuntime({.without_barrier = without_barrier});
    runtime_ = runtime.get();
    backend_ = MakeCudaBackend("cuda-emulated", cuda::kEmulatedKernels, std::move(runtime), executor_).value();
  }
  absl::Status Run() {
    Rows();
    Routers();
    Rotation();
    for (const int tokens : {1, 3}) Product(FormatId::kQ2K, tokens), Product(FormatId::kF32, tokens);
    Attention();
    return backend_->Fence();
  }
  std::set<Place> barriers() const { return runtime_->barriers(); }

 private:
  template <class T>
  T* Keep(const std::vector<T>& numbers) {
    buffers_.push_back(runtime_->Allocate(numbers.size() * sizeof(T), MemoryKind::kPinned).value());
    std::memcpy(buffers_.back().data(), numbers.data(), numbers.size() * sizeof(T));
    return reinterpret_cast<T*>(buffers_.back().data());
  }
  float* Numbers(size_t count) { return Keep(Gaussian(count, 1)); }

  void Rows() {
    const int cols = 8200;  // more than a block of threads holds
    float* const x = Numbers(cols);
    backend_->Normalize({.eps = 1e-6f}, x, 1, cols, x);
    backend_->Normalize({x, x, 1e-6f}, x, 1, cols, Numbers(cols));
    backend_->Softmax(x, 1, cols);
  }
  void Routers() {
    ExpertChoice* const choices = Keep(std::vector<ExpertChoice>(4));
    for (const RouterScoring scoring : {RouterScoring::kSoftmax, RouterScoring::kSigmoid}) {
      const RouterShape shape{.experts = 300, .top_k = 4, .scoring = scoring, .correction = Numbers(300)};
      backend_->Route(shape, Numbers(300), 1, choices);
      backend_->Rank(shape, Numbers(300), 1);
    }
    const std::vector<int32_t> places = {0, 1, 2, 3};
    backend_->Combine(
        {.rows = 1, .cols = 40, .top_k = 4, .choices = choices, .places = places, .outputs = Numbers(4 * 40), .x = Numbers(40)});
  }
  void Rotation() {
    const RopeShape shape{.heads = 33, .head_dim = 128, .rotary_dims = 128};
    const int32_t position = 7;
    backend_->Rope(shape, Numbers(33 * 128), 1, 33 * 128, &position, Numbers(64));
    const AttentionShape heads{.heads = 4, .kv_heads = 2, .head_dim = 64};
    const HeadTransform transform{.rotary_dims = 64, .inv_freq = Numbers(32)};
    const auto page_bytes = static_cast<size_t>(2 * 2 * kKvPageTokens * KvRowBytes(heads.kv_format, 64));
    std::byte* const page = Keep(std::vector<std::byte>(page_bytes));
    const KvRun run{.pages = {&page, 1}, .position = position, .tokens = 1};
    backend_->TransformAndStore(heads, transform, {&run, 1}, &position, Numbers(4 * 64), Numbers(2 * 64), Numbers(2 * 64));
  }
  void Product(FormatId format, int tokens) {
    const int rows = 40, cols = 2048;
    const PackedMatrix matrix = RandomMatrix(format, rows, cols, 3);
    MatrixView view = matrix.view;
    view.data = Keep(matrix.bytes);
    const InputForms forms = InputForms::Of({format});
    const size_t bytes = ActivationBytes(tokens, cols, forms);
    const Activations input = backend_->Prepare(Numbers(static_cast<size_t>(tokens) * cols), tokens, cols, cols, forms,
                                                {Keep(std::vector<std::byte>(bytes)), bytes});
    const MatMulJob job{view, &input, Numbers(static_cast<size_t>(tokens) * rows), rows};
    backend_->MatMul({&job, 1});
  }
  void Attention() {
    const int positions = 300, pages = 5, dims = 160;
    const AttentionShape shape{.heads = 2, .kv_heads = 1, .head_dim = dims, .scale = 0.2f};
    std::vector<std::byte*> places;
    const auto page_bytes = static_cast<size_t>(2 * shape.kv_heads * kKvPageTokens * KvRowBytes(shape.kv_format, shape.head_dim));
    for (int i = 0; i < pages; ++i) places.push_back(Keep(std::vector<std::byte>(page_bytes)));
    const KvRun run{.pages = places, .position = positions - 1, .tokens = 1};
    backend_->Attention(shape, {&run, 1}, Numbers(2 * dims), Numbers(2 * dims), {});
    const size_t scratch = 2 * 2 * (256 + 8 + dims);
    const KvRun of_one_piece{.pages = places, .position = 70, .tokens = 1};
    for (const KvRun& spread : {run, of_one_piece}) {
      backend_->Attention(shape, {&spread, 1}, Numbers(2 * dims), Numbers(2 * dims), {Numbers(scratch), scratch});
    }
  }

  InlineExecutor executor_;
  emulation::EmulatedRuntime* runtime_ = nullptr;
  std::vector<Buffer> buffers_;
  std::unique_ptr<ComputeBackend> backend_;
};

TEST(Barriers, EveryOneIsMissed) {
  Operations all(std::nullopt);
  EXPECT_EQ(all.Run(), absl::OkStatus());
  EXPECT_EQ(all.barriers().size(), 25);
  for (const Place& barrier : all.barriers()) EXPECT_FALSE(Operations(barrier).Run().ok()) << barrier.file << ":" << barrier.line;
}

}  // namespace
}  // namespace moed
