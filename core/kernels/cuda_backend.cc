#include "core/kernels/cuda_backend.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "core/base/check.h"
#include "core/base/lost_device.h"
#include "core/base/status.h"
#include "core/kernels/cuda/graph_stream.h"
#include "core/kernels/cuda_attention.h"
#include "core/kernels/cuda_choices.h"
#include "core/kernels/cuda_memory.h"
#include "core/kernels/cuda_products.h"
#include "core/kernels/cuda_states.h"
#include "core/kernels/descriptions.h"
#include "core/kernels/half_storage.h"

namespace moed {
namespace {

using namespace cuda;  // operations

template <class T>
void ClearPadding([[maybe_unused]] T& value) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&value);
#endif
}

// Activations are handed out to be read; here they are written.
template <class T>
T* Mutable(const T* numbers) {
  return const_cast<T*>(numbers);
}
PreparedRows RowsOf(const Activations& all) {
  return {Mutable(all.values), Mutable(all.codes), Mutable(all.scales), Mutable(all.sums)};
}

class CudaBackend final : public ComputeBackend {
 public:
  CudaBackend(std::string_view name, const KernelSet& kernels, std::unique_ptr<DeviceRuntime> runtime,
              std::unique_ptr<DeviceStream> stream, Executor& executor)
      : name_(name),
        kernels_(kernels),
        runtime_(std::move(runtime)),
        descriptions_(*runtime_),
        stream_(*runtime_, std::move(stream), [this](DeviceStream& launches) { descriptions_.Flush(launches); }),
        memory_(*runtime_, stream_),
        executor_(executor),
        choices_(descriptions_, memory_.unified()) {}
  ~CudaBackend() override { Fence().IgnoreError(); }

  std::string_view name() const override { return name_; }
  int threads() const override { return executor_.threads(); }
  BackendMemory& memory() override { return memory_; }

  absl::Status Fence() override {
    absl::Status status = stream_.Synchronize();
    status.Update(descriptions_.status());
    descriptions_.Clear();
    choices_.Clear();
    const absl::Status told = Annotate(status, StrCat("the compute backend '", name_, "' failed"));
    return IsLostDevice(status) ? WithLostDevice(told) : told;
  }
  void Begin() override { stream_.Begin(); }
  bool gains_by_whole_steps() const override { return true; }
  void BeginWholeStep() override { stream_.BeginLongList(); }
  bool Idle() const override { return stream_.Idle(); }
  void Await(const ReadyEvent& event) override { stream_.Await(event); }

  void Embed(const MatrixView& matrix, std::span<const TokenId> tokens, float* y) override;
  void GatherRows(const float* x, int cols, std::span<const int32_t> rows, float* y) override {
    GatherParts({{reinterpret_cast<const uint32_t*>(x), reinterpret_cast<uint32_t*>(y), cols}}, rows);
  }
  Activations Prepare(const float* x, int tokens, int cols, int64_t stride, InputForms forms,
                      std::span<std::byte> storage) override;
  Activations Gather(const Activations& from, std::span<const int32_t> rows, std::span<std::byte> storage) override;
  void MatMul(std::span<const MatMulJob> jobs) override;
  absl::Status OpenFastMatmul() override {
    MOED_RETURN_IF_ERROR(runtime_->OpenMatmul());
    multiplies_halves_ = true;
    return absl::OkStatus();
  }
  void Normalize(const Norm& norm, const float* x, int rows, int cols, float* y) override { RunNorm(norm, x, rows, cols, y, {}); }
  Activations NormalizeAndPrepare(const Norm& norm, const float* x, int rows, int cols, float* y, InputForms forms,
                                  std::span<std::byte> storage) override;
  void Scale(float* x, float scale, int64_t n) override { Run(kernels_.scale, {.x = x, .scale = scale, .n = n}); }
  void Rope(const RopeShape& shape, float* x, int tokens, int64_t stride, const int32_t* positions,
            const float* inv_freq) override;
  void StoreKv(const AttentionShape& shape, std::span<const KvRun> runs, const float* keys, const float* values) override;
  void TransformAndStore(const AttentionShape& shape, const HeadTransform& transform, std::span<const KvRun> runs, const int32_t*,
                         float* query, float* keys, const float* values) override {
    Run(kernels_.heads, HeadsOf(shape, transform, runs, query, keys, values, descriptions_));
  }
  void Attention(const AttentionShape& shape, std::span<const KvRun> runs, const float* query, float* output,
                 std::span<float> scores) override {
    Run(kernels_.attention, AttentionOf(shape, query, output, RunsOf(runs, scores)));
  }
  void StoreLatent(const LatentShape& shape, std::span<const KvRun> runs, const float* latents, const float* rotated) override;
  void AttendLatent(const LatentShape& shape, std::span<const KvRun> runs, const float* query, const float* rotated,
                    int64_t rotated_stride, float* output, std::span<float> scores) override {
    Run(kernels_.attention, AttentionOf(shape, query, rotated, rotated_stride, output, RunsOf(runs, scores)));
  }
  void Convolve(const ConvolutionShape& shape, std::span<const StateRun> runs, const float* x, const float* weights,
                float* y) override {
    Run(kernels_.convolve, ConvolutionOf(shape, runs, x, weights, y, descriptions_));
  }
  void DeltaGates(float* a, float* b, const float* bias, const float* decay_rates, int rows, int heads, int decays) override {
    Run(kernels_.delta_gates, {.a = a,
                               .b = b,
                               .bias = bias,
                               .decay_rates = decay_rates,
                               .heads = heads,
                               .decays = decays,
                               .n = int64_t{rows} * heads * decays});
  }
  void DeltaRule(const DeltaRuleShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                 const float* rate, float* output) override {
    Run(kernels_.states, StatesOf(shape, runs, x, decay, rate, output, descriptions_));
  }
  void StepSizes(float* steps, const float* bias, const float* decay_rates, int rows, int heads, float* decays) override {
    Run(kernels_.step_sizes,
        {.steps = steps, .decays = decays, .bias = bias, .decay_rates = decay_rates, .heads = heads, .n = int64_t{rows} * heads});
  }
  void StateSpace(const StateSpaceShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                  const float* steps, const float* skip, float* output) override {
    Run(kernels_.states, StatesOf(shape, runs, x, decay, steps, skip, output, descriptions_));
  }
  void Multiply(float* x, const float* by, int64_t n) override { Run(kernels_.multiply, {.x = x, .by = by, .n = n}); }
  void SigmoidGate(float* x, const float* gate, int64_t n) override {
    Run(kernels_.sigmoid_gate, {.x = x, .gate = gate, .n = n});
  }
  void SoftplusGate(float* x, const float* gates, int64_t n, int width) override {
    Run(kernels_.softplus_gate, {.x = x, .gates = gates, .width = width, .n = n * width});
  }
  void Activate(const FfnActivation& activation, const float* gate, const float* up, int64_t n, float* out) override {
    Run(kernels_.activate, {.activation = activation, .gate = gate, .up = up, .out = out, .n = n});
  }
  Activations ActivateAndPrepare(const FfnActivation& activation, const float* gate, float* up, int rows, int cols,
                                 InputForms forms, std::span<std::byte> storage) override;
  void SoftCap(float* x, float cap, int64_t n) override { Run(kernels_.soft_cap, {.x = x, .cap = cap, .n = n}); }
  void Softmax(float* x, int rows, int cols) override { Run(kernels_.softmax, {.x = x, .rows = rows, .cols = cols}); }
  void Route(const RouterShape& shape, float* logits, int rows, ExpertChoice* choices) override {
    Run(kernels_.route, choices_.RouteOf(shape, logits, rows, choices));
  }
  void Rank(const RouterShape& shape, float* logits, int rows) override {
    Run(kernels_.route, {.shape = shape, .logits = logits, .choices = nullptr, .choices_on_host = nullptr, .rows = rows});
  }
  void Combine(const CombineJob& job) override;
  void AddScaled(float* y, const float* x, float scale, int64_t n) override {
    Run(kernels_.add_scaled, {.y = y, .x = x, .scale = scale, .n = n});
  }
  void Add(float* y, const float* x, int64_t n) override { Run(kernels_.add, {.y = y, .x = x, .n = n}); }

 private:
  // What could not be described does not run, nor anything behind it, until Fence has said so. The same operation is the same
  // bytes, so that its launch is known again.
  template <class Operation>
  void Run(Launcher<Operation> launch, Operation operation) {
    ClearPadding(operation);
    if (descriptions_.status().ok()) launch(stream_, operation);
  }
  void RunNorm(const Norm& norm, const float* x, int rows, int cols, float* y, const PreparedRows& prepared);
  void GatherParts(std::initializer_list<GatherOperation::Part> parts, std::span<const int32_t> rows);
  bool OfHalves(const MatMulJob& job) const { return multiplies_halves_ && !job.halves.empty(); }
  void MultiplyHalves(const MatMulJob& job);
  AttendedRuns RunsOf(std::span<const KvRun> runs, std::span<float> scores) {
    return {runs, scores, runtime_->attributes().multiprocessors, descriptions_};
  }

  const std::string_view name_;
  const KernelSet& kernels_;
  const std::unique_ptr<DeviceRuntime> runtime_;
  Descriptions descriptions_;
  GraphStream stream_;
  CudaMemory memory_;
  Executor& executor_;
  ExpertChoices choices_;
  bool multiplies_halves_ = false;
};

void CudaBackend::Embed(const MatrixView& matrix, std::span<const TokenId> tokens, float* y) {
  const auto rows = descriptions_.Take<int32_t>(tokens.size());
  std::transform(tokens.begin(), tokens.end(), rows.host, [](TokenId token) { return token.value(); });
  Run(kernels_.embed, {.format = matrix.format,
                       .matrix = reinterpret_cast<const unsigned char*>(matrix.data),
                       .tokens = rows.device,
                       .y = y,
                       .rows = static_cast<int>(tokens.size()),
                       .cols = matrix.cols});
}

void CudaBackend::GatherParts(std::initializer_list<GatherOperation::Part> parts, std::span<const int32_t> rows) {
  GatherOperation operation = {.parts = {}, .rows = descriptions_.Copy(rows), .words = 0, .n = 0};
  int count = 0;
  for (const GatherOperation::Part& part : parts) {
    operation.parts[count++] = part;
    operation.words += part.words;
  }
  operation.n = static_cast<int64_t>(rows.size()) * operation.words;
  Run(kernels_.gather, operation);
}

Activations CudaBackend::Prepare(const float* x, int tokens, int cols, int64_t stride, InputForms forms,
                                 std::span<std::byte> storage) {
  const Activations all = ActivationsIn(storage, tokens, cols, forms);
  Run(kernels_.prepare, {.x = x, .stride = stride, .tokens = tokens, .cols = cols, .prepared = RowsOf(all)});
  return all;
}

void CudaBackend::RunNorm(const Norm& norm, const float* x, int rows, int cols, float* y, const PreparedRows& prepared) {
  const NormOperation operation = {.x = x,
                                   .weight = norm.weight,
                                   .bias = norm.bias,
                                   .y = y,
                                   .prepared = prepared,
                                   .eps = norm.eps,
                                   .rows = rows,
                                   .cols = cols};
  Run(norm.bias == nullptr ? kernels_.rms_norm : kernels_.layer_norm, operation);
}

Activations CudaBackend::NormalizeAndPrepare(const Norm& norm, const float* x, int rows, int cols, float* y, InputForms forms,
                                             std::span<std::byte> storage) {
  const Activations all = ActivationsIn(storage, rows, cols, forms);
  RunNorm(norm, x, rows, cols, y, RowsOf(all));
  return all;
}

Activations CudaBackend::ActivateAndPrepare(const FfnActivation& activation, const float* gate, float* up, int rows, int cols,
                                            InputForms forms, std::span<std::byte> storage) {
  const Activations all = ActivationsIn(storage, rows, cols, forms);
  Run(kernels_.activate_and_prepare,
      {.activation = activation, .gate = gate, .up = up, .tokens = rows, .cols = cols, .prepared = RowsOf(all)});
  return all;
}

Activations CudaBackend::Gather(const Activations& from, std::span<const int32_t> rows, std::span<std::byte> storage) {
  const Activations to = ActivationsIn(storage, static_cast<int>(rows.size()), from.cols, from.forms());
  const int64_t blocks = Blocks(from.cols);
  const auto part = [](const auto* x, const auto* y, int64_t words) {
    return GatherOperation::Part{reinterpret_cast<const uint32_t*>(x), reinterpret_cast<uint32_t*>(Mutable(y)),
                                 x == nullptr ? 0 : words};
  };
  GatherParts({part(from.values, to.values, blocks * kBlockColumns),
               part(from.codes, to.codes, blocks * kBlockColumns / int64_t{sizeof(uint32_t)}),
               part(from.scales, to.scales, blocks), part(from.sums, to.sums, blocks)},
              rows);
  return to;
}

void CudaBackend::MatMul(std::span<const MatMulJob> jobs) {
  choices_.ForgetTables();
  for (const MatMulJob& job : jobs) {
    MOED_CHECK(job.input->cols == job.weights.cols && job.input->forms().Cover(InputForms::Of({job.weights.format})));
    MOED_CHECK(FitsColumns(job.weights.format, job.weights.cols));
    if (OfHalves(job)) MultiplyHalves(job);
  }
  const auto exact = [this](const MatMulJob& job) { return !OfHalves(job); };
  const auto launch = [this](const ProductsOperation& operation) { Run(kernels_.products, operation); };
  LaunchProducts(jobs, exact, descriptions_, choices_, launch);
}

// As many rows of the matrix at once as there is room for.
void CudaBackend::MultiplyHalves(const MatMulJob& job) {
  MOED_CHECK(job.choice == nullptr);
  const int tokens = job.input->tokens, inner = Blocks(job.weights.cols) * kBlockColumns;
  const auto storage =
      HalfStorage::In(job.halves, static_cast<size_t>(tokens), static_cast<size_t>(job.weights.rows), static_cast<size_t>(inner));
  MOED_CHECK(storage.rows() >= kPanelRows || job.weights.rows == 0);
  Run(kernels_.halve_input, HalveInputOf(job, storage));
  for (int first = 0; first < job.weights.rows; first += storage.rows()) {
    const MatrixView slab = job.weights.Rows(first, std::min(storage.rows(), job.weights.rows - first));
    Run(kernels_.halve_weights, HalveWeightsOf(slab, storage));
    stream_.Multiply({storage.weights.data(), storage.input.data(), storage.products.data(), slab.rows, tokens, inner});
    Run(kernels_.finish_products, FinishProductsOf(job, slab, first, storage));
  }
}

void CudaBackend::Rope(const RopeShape& shape, float* x, int tokens, int64_t stride, const int32_t* positions,
                       const float* inv_freq) {
  Run(kernels_.rope, {.x = x,
                      .positions = descriptions_.Copy(std::span(positions, static_cast<size_t>(tokens))),
                      .inv_freq = inv_freq,
                      .stride = stride,
                      .rows = tokens,
                      .heads = shape.heads,
                      .head_dim = shape.head_dim,
                      .rotary_dims = shape.rotary_dims,
                      .interleaved = shape.interleaved,
                      .magnitude = shape.magnitude});
}

void CudaBackend::StoreKv(const AttentionShape& shape, std::span<const KvRun> runs, const float* keys, const float* values) {
  AttentionShape without_queries = shape;
  without_queries.heads = 0;
  Run(kernels_.heads, HeadsOf(without_queries, {}, runs, nullptr, keys, values, descriptions_));
}

void CudaBackend::StoreLatent(const LatentShape& shape, std::span<const KvRun> runs, const float* latents, const float* rotated) {
  StoreRowsOperation operation = {.format = shape.kv_format,
                                  .numbers = latents,
                                  .row_bytes = LatentRowBytes(shape.kv_format, shape.rank, shape.rotary_dims),
                                  .dims = shape.rank};
  operation.places = PlacesOf(runs, shape.page_tokens, descriptions_, operation.rows);
  Run(kernels_.store_rows, operation);
  operation.numbers = rotated;
  operation.first_byte = KvRowBytes(shape.kv_format, shape.rank);
  operation.dims = shape.rotary_dims;
  Run(kernels_.store_rows, operation);
}

void CudaBackend::Combine(const CombineJob& job) {
  const size_t slots = static_cast<size_t>(job.rows) * static_cast<size_t>(job.top_k);
  Run(kernels_.combine, {.choices = choices_.ChoicesOf({job.choices, slots}),
                         .expert_scales = job.expert_scales,
                         .places = descriptions_.Copy(job.places),
                         .outputs = job.outputs,
                         .shared = job.shared,
                         .shared_gate = job.shared_gate,
                         .x = job.x,
                         .scale = job.scale,
                         .shared_scale = job.shared_scale,
                         .rows = job.rows,
                         .cols = job.cols,
                         .top_k = job.top_k,
                         .adds = job.adds});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeCudaBackend(std::string_view name, const KernelSet& kernels,
                                                                std::unique_ptr<DeviceRuntime> runtime, Executor& executor) {
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<DeviceStream> stream, runtime->MakeStream());
  return std::make_unique<CudaBackend>(name, kernels, std::move(runtime), std::move(stream), executor);
}

}  // namespace moed
