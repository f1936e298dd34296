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
#include "core/kernels/descriptions.h"
#include "core/kernels/half_storage.h"

namespace moed {
namespace {

using namespace cuda;  // operations

constexpr int kStateColumns = 32;                              // of a warp, at most
constexpr int kMostStateBytes = 48 << 10;                      // of shared memory, for a warp's columns
constexpr int kTogether[] = {1, cuda::kFewTokens, INT32_MAX};  // tokens: jobs with as many are one launch

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
                float* y) override;
  void DeltaGates(float* a, float* b, const float* bias, const float* decay_rates, int rows, int heads) override {
    Run(kernels_.delta_gates,
        {.a = a, .b = b, .bias = bias, .decay_rates = decay_rates, .heads = heads, .n = int64_t{rows} * heads});
  }
  void DeltaRule(const DeltaRuleShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                 const float* rate, float* output) override;
  void StepSizes(float* steps, const float* bias, const float* decay_rates, int rows, int heads, float* decays) override {
    Run(kernels_.step_sizes,
        {.steps = steps, .decays = decays, .bias = bias, .decay_rates = decay_rates, .heads = heads, .n = int64_t{rows} * heads});
  }
  void StateSpace(const StateSpaceShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                  const float* steps, const float* skip, float* output) override;
  void Multiply(float* x, const float* by, int64_t n) override { Run(kernels_.multiply, {.x = x, .by = by, .n = n}); }
  void SigmoidGate(float* x, const float* gate, int64_t n) override {
    Run(kernels_.sigmoid_gate, {.x = x, .gate = gate, .n = n});
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
  // The exact jobs of this format with more than `fewer` and at most `most` tokens.
  void LaunchProducts(std::span<const MatMulJob> jobs, FormatId format, int fewer, int most);
  AttendedRuns RunsOf(std::span<const KvRun> runs, std::span<float> scores) {
    return {runs, scores, runtime_->attributes().multiprocessors, descriptions_};
  }
  template <class Shape>
  void LaunchStates(const Shape& shape, std::span<const StateRun> runs, StateOperation operation);
  const int64_t* FirstRows(std::span<const StateRun> runs);

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
  uint32_t formats = 0;
  choices_.ForgetTables();
  static_assert(kFormatCount <= 32);
  for (const MatMulJob& job : jobs) {
    MOED_CHECK(job.input->cols == job.weights.cols && job.input->forms().Cover(InputForms::Of({job.weights.format})));
    MOED_CHECK(FitsColumns(job.weights.format, job.weights.cols));
    if (OfHalves(job)) {
      MOED_CHECK(job.choice == nullptr);
      MultiplyHalves(job);
    } else {
      formats |= uint32_t{1} << static_cast<int>(job.weights.format);
    }
  }
  for (int format = 0; format < kFormatCount; ++format) {
    if ((formats >> format & 1) == 0) continue;
    int fewer = 0;
    for (const int most : kTogether) LaunchProducts(jobs, static_cast<FormatId>(format), std::exchange(fewer, most), most);
  }
}

void CudaBackend::LaunchProducts(std::span<const MatMulJob> jobs, FormatId format, int fewer, int most) {
  const auto among = [&](const MatMulJob& job) {
    return job.weights.format == format && job.input->tokens > fewer && job.input->tokens <= most && job.weights.rows > 0 &&
           !OfHalves(job);
  };
  const auto count = std::count_if(jobs.begin(), jobs.end(), among);
  if (count == 0) return;
  const auto described = descriptions_.Take<ProductJob>(static_cast<size_t>(count));
  ProductsOperation operation = {
      .format = format, .jobs = described.device, .count = static_cast<int>(count), .groups = 0, .tokens = 0};
  ProductJob* next = described.host;
  for (const MatMulJob& job : jobs) {
    if (!among(job)) continue;
    const Activations& x = *job.input;
    const int panels = PanelsOfBlock(PackedBytes(format, kPanelRows, job.weights.cols), x.tokens);
    *next++ = {.weights = reinterpret_cast<const unsigned char*>(job.weights.data),
               .values = x.values,
               .codes = x.codes,
               .scales = x.scales,
               .sums = x.sums,
               .bias = job.bias,
               .output = job.output,
               .output_stride = job.output_stride,
               .rows = job.weights.rows,
               .blocks = Blocks(job.weights.cols),
               .tokens = x.tokens,
               .first_group = operation.groups,
               .panels = panels,
               .scale = job.scale,
               .adds = job.adds,
               .choice = job.choice == nullptr ? nullptr : choices_.ChoicesOf({job.choice, 1}),
               .matrices = job.choice == nullptr ? nullptr : choices_.MatricesOf(job.matrices)};
    operation.groups += static_cast<int>(CeilDiv(Panels(job.weights.rows), panels));
    operation.tokens = std::max(operation.tokens, x.tokens);
  }
  Run(kernels_.products, operation);
}

// As many rows of the matrix at once as there is room for.
void CudaBackend::MultiplyHalves(const MatMulJob& job) {
  const Activations& x = *job.input;
  const int inner = Blocks(job.weights.cols) * kBlockColumns;
  const auto storage = HalfStorage::In(job.halves, static_cast<size_t>(x.tokens), static_cast<size_t>(job.weights.rows),
                                       static_cast<size_t>(inner));
  MOED_CHECK(storage.rows() >= kPanelRows || job.weights.rows == 0);
  const bool codes = InputForms::Of({job.weights.format}).codes;
  Run(kernels_.halve_input, {.values = codes ? nullptr : x.values,
                             .codes = x.codes,
                             .scales = x.scales,
                             .to = {storage.input.data(), storage.input_inverses.data()},
                             .rows = x.tokens,
                             .cols = x.cols});
  for (int first = 0; first < job.weights.rows; first += storage.rows()) {
    const MatrixView slab = job.weights.Rows(first, std::min(storage.rows(), job.weights.rows - first));
    Run(kernels_.halve_weights, {.format = slab.format,
                                 .matrix = reinterpret_cast<const unsigned char*>(slab.data),
                                 .to = {storage.weights.data(), storage.weight_inverses.data()},
                                 .rows = slab.rows,
                                 .cols = slab.cols});
    stream_.Multiply({storage.weights.data(), storage.input.data(), storage.products.data(), slab.rows, x.tokens, inner});
    Run(kernels_.finish_products, {.products = storage.products.data(),
                                   .weight_inverses = storage.weight_inverses.data(),
                                   .input_inverses = storage.input_inverses.data(),
                                   .bias = job.bias == nullptr ? nullptr : job.bias + first,
                                   .output = job.output + first,
                                   .output_stride = job.output_stride,
                                   .rows = slab.rows,
                                   .scale = job.scale,
                                   .adds = job.adds,
                                   .n = int64_t{x.tokens} * slab.rows});
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
                      .interleaved = shape.interleaved});
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

const int64_t* CudaBackend::FirstRows(std::span<const StateRun> runs) {
  const auto first_rows = descriptions_.Take<int64_t>(runs.size());
  int64_t first = 0;
  for (size_t i = 0; i < runs.size(); ++i) first_rows.host[i] = std::exchange(first, first + runs[i].tokens);
  return first_rows.device;
}

void CudaBackend::Convolve(const ConvolutionShape& shape, std::span<const StateRun> runs, const float* x, const float* weights,
                           float* y) {
  MOED_CHECK(shape.taps >= 2 && shape.taps <= kMostTaps);
  Run(kernels_.convolve, {.runs = descriptions_.Copy(runs),
                          .first_rows = FirstRows(runs),
                          .x = x,
                          .weights = weights,
                          .bias = shape.bias,
                          .y = y,
                          .channels = shape.channels,
                          .taps = shape.taps,
                          .silu = shape.silu,
                          .n = static_cast<int64_t>(runs.size()) * shape.channels});
}

template <class Shape>
void CudaBackend::LaunchStates(const Shape& shape, std::span<const StateRun> runs, StateOperation operation) {
  const int column_bytes = shape.key_dim * static_cast<int>(sizeof(float));
  MOED_CHECK(column_bytes <= kMostStateBytes);
  operation.runs = descriptions_.Copy(runs);
  operation.first_rows = FirstRows(runs);
  operation.row = shape.row();
  operation.count = static_cast<int>(runs.size());
  operation.key_heads = shape.key_heads;
  operation.value_heads = shape.value_heads;
  operation.key_dim = shape.key_dim;
  operation.value_dim = shape.value_dim;
  operation.columns = std::min(kStateColumns, kMostStateBytes / column_bytes);
  Run(kernels_.states, operation);
}

void CudaBackend::DeltaRule(const DeltaRuleShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                            const float* rate, float* output) {
  const int64_t key_width = int64_t{shape.key_heads} * shape.key_dim;
  LaunchStates(shape, runs,
               {.x = x,
                .decay = decay,
                .rate = rate,
                .output = output,
                .queries = 0,
                .keys = key_width,
                .values = 2 * key_width,
                .key_heads_in_turn = shape.key_heads_in_turn,
                .scale = shape.scale});
}

void CudaBackend::StateSpace(const StateSpaceShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                             const float* steps, const float* skip, float* output) {
  LaunchStates(shape, runs,
               {.x = x,
                .decay = decay,
                .rate = steps,
                .skip = skip,
                .output = output,
                .queries = shape.output_row() + int64_t{shape.key_heads} * shape.key_dim,
                .keys = shape.output_row(),
                .values = 0});
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
