// The operations a decoder needs. One op = contract here, scalar definition in reference.cc, one file per instruction set in
// cpu/.
//
// Operations are enqueued: a call may return before the operation has run. They run in the order of their calls, each as if those
// before it had ended; ComputeBackend::Fence returns when all have, or says why they never will. What an operation is given is of
// two kinds:
//   descriptions  shapes, jobs, Activations, token ids, positions, row numbers, lists of pages and of matrices: the call copies
//                 them, and choices as far as no Route that was called since the last Fence writes them
//   numbers       weights, activations, keys and values, scratch: behind pointers to floats and bytes. From the call to the next
//                 Fence the host returns none of their memory, writes none, and reads none that an operation writes
// The CPU's backends compute during the call and are always idle.
//
// Exact arithmetic. The scalar definition fixes every rounding and every order of additions, so that all backends give the same
// bits (compiled with -ffp-contract=off, fused multiply-adds written out):
//   activations   blocks of 32: d = max|x| / 127, q = round-to-nearest-even(x * (127 / max|x|));
//                 d = 0, q = 0 where max|x| < 2^-100; d = NaN, q = 0 where an infinity or a NaN is in the block, so that it shows
//   codes         per row: acc = 0; per part (16 or 32 columns) in order: acc = fma(float(dot of levels), d_w * d_x, acc), and
//                 with offsets acc = fma(float(sum(x)), m_w * d_x, acc); int32 dots; levels, d_w, m_w: quant/block_layouts.h
//   f32, f16, bf16, fp8  per row: lane sum of w[k] x[k] over the padded width; w of fp8: number times scale, rounded to float32
//   products      scale * (sum + bias), sum + bias where there is a bias; what adds to y makes it fma(scale, sum + bias, y)
//   lane sums     where a vector is reduced (float rows, norms, softmax): 8 partial sums, element i into partial i mod 8 by fma,
//                 i ascending, then ((s0+s4)+(s2+s6))+((s1+s5)+(s3+s7))
//   RMS norm      (x * (1 / sqrt(sum / cols + eps))) * weight, or without the last product
//   layer norm    m = lane sum / cols, c = x - m, ((c * (1 / sqrt(lane sum of c * c / cols + eps))) * weight) + bias; its lane
//   sums
//                 add without fma
//   softmax       e = exp(x - max), e / lane sum of e
//   attention     score = scale * acc, acc = fma(q[d], k[d], acc), d ascending; e = exp(score - max); per column of the values a
//                 sum for every 256 positions (those of a multiple of 256 on), acc = fma(e[t], v[t], acc), t ascending; these
//                 sums added in ascending order; the result divided by the lane sum of e, position t in partial t mod 8
//   bias          of a position is added to its score, rounded
//   latent        the same, the keys being a position's latent and behind it its rotated key, the values its latent
//   sink          of a head: max is of the scores and the sink; exp(sink - max) is added to the lane sum of e
//   sigmoid gate  x * sigmoid(gate)
//   softplus gate x * softplus(gate)
//   convolution   acc = bias or 0, acc = acc + weight * x, each product rounded, the oldest position first; then acc *
//                 sigmoid(acc) where there is a SiLU
//   delta gates   decay = exp(rate * softplus(a + bias)), sigmoid(b); softplus(x) = max(x, 0) + log(1 + exp(-|x|)), the logarithm
//                 by own polynomial in double, rounded to float32 at the end
//   delta rule    per column j of a head's state S, i ascending in every sum: m = fma(S[i][j], k[i], m), then
//                 d = fma(-decay, m, v[j]) * rate, S[i][j] = fma(k[i], d, decay * S[i][j]), o = fma(S[i][j], q[i], o); scale * o
//   state space   the same with d = v[j] * step; fma(skip, v[j], o)
//   step sizes    step = softplus(x + bias), decay = exp(rate * step)
//   exp           own polynomial (kernels/math.h); silu(x) = x / (1 + exp(-x)), sigmoid(x) = 1 / (1 + exp(-x))
//   GeGLU         (g / (1 + exp(-(g * fma(b, g * g, a))))) * up, a = 2 sqrt(2 / pi), b = 0.044715 a: GELU in its tanh form
//   ReLU          0 where x < 0, else x
//   ReGLU         the ReLU of g, times up
//   squared ReLU  r * r, r the ReLU of x
//   soft cap      cap * tanh(x / cap), tanh by own polynomial where |t| < 0.625, else 1 - 2 / (exp(2 |t|) + 1) with t's sign
//   clamped SwiGLU  (clamp(up, -limit, limit) + 1) * (g / (1 + exp(-(alpha * g)))), g = min(gate, limit)
//   RoPE          angle = float(position) * inv_freq[i] in float32, sine and cosine by own double polynomial, rounded to float32;
//                 (a cos - b sin, b cos + a sin), each product rounded
// The result for one token never depends on which other tokens are in the call, nor on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/executor.h"
#include "core/base/expert_choice.h"
#include "core/base/ids.h"
#include "core/base/ready_event.h"
#include "core/kernels/activations.h"
#include "core/kernels/backend_memory.h"
#include "core/kernels/ffn_activation.h"
#include "core/kernels/kv_rows.h"
#include "core/kernels/position_bias.h"
#include "core/kernels/recurrence.h"
#include "core/kernels/router.h"
#include "core/quant/format.h"

namespace moed {

// A packed matrix (rows, cols) somewhere in memory, 16-byte aligned at least.
struct MatrixView {
  FormatId format = FormatId::kF32;
  int rows = 0;
  int cols = 0;
  const std::byte* data = nullptr;

  // Some of its rows; `first` is a multiple of kPanelRows.
  MatrixView Rows(int first, int count) const { return {format, count, cols, data + PackedBytes(format, first, cols)}; }
};

struct MatMulJob {
  MatrixView weights;                  // (rows, cols)
  const Activations* input = nullptr;  // (tokens, cols)
  float* output = nullptr;             // (tokens, rows), row-major with `output_stride` floats from token to token
  int64_t output_stride = 0;
  const float* bias = nullptr;  // (rows); null: none
  float scale = 1;              // of what the product and its bias make
  bool adds = false;            // to what the output holds
  // Of an expert that a Route before this one chooses, once that has run: its matrix is matrices[choice->expert], in place of
  // weights.data, and its bias lies `rows` floats further for each expert before it. Null: the job says both. Exact ones alone.
  const ExpertChoice* choice = nullptr;
  std::span<const std::byte* const> matrices = {};
  // Storage of HalfProductBytes; not empty: the product need not be exact. A backend whose OpenFastMatmul was OK then multiplies
  // weights and prepared input as 16-bit numbers, each row times a power of two, with sums in float32 of any order. The jobs of a
  // call may have the same storage.
  std::span<std::byte> halves = {};

  // For backends that compute during the call: with what the choice says.
  MatMulJob Chosen() const {
    MatMulJob chosen = *this;
    if (choice == nullptr) return chosen;
    chosen.weights.data = matrices[static_cast<size_t>(choice->expert)];
    if (bias != nullptr) chosen.bias = bias + int64_t{choice->expert} * weights.rows;
    return chosen;
  }
};

// Of rows: their RMS norm, or their layer norm where there is a bias.
struct Norm {
  const float* weight = nullptr;  // (cols); null: ones, of an RMS norm
  const float* bias = nullptr;    // (cols)
  float eps = 0;
};

// Consecutive positions of one sequence, a row of activations each; the rows of the runs of a call follow each other. Runs and
// lists of pages are read before the call returns.
struct KvRun {
  // Page p holds positions [p * page_tokens, ...), see kv_rows.h; all up to the last of the run's. Those before the window of its
  // first row are not read and may be null.
  std::span<std::byte* const> pages;
  int position = 0;  // of the first row
  int tokens = 0;    // rows
  int first = 0;     // no row attends positions before it
  int seen = 0;      // every row attends the positions up to this one, which pages cover, whatever its own; 0: up to its own
};

struct AttentionShape {
  int heads = 0;
  int kv_heads = 0;  // divides heads
  int head_dim = 0;  // at most kMostHeadDim
  int page_tokens = kKvPageTokens;
  float scale = 0;  // score = scale * dot(q, k)
  KvFormat kv_format = KvFormat::kF32;
  int window = 0;                // a row attends its own position and the window - 1 before it; 0: all
  const float* sinks = nullptr;  // (heads): logits that take part in the softmax and have no value; null: none
  PositionBias bias = {};
};

// Attention whose positions have one row for all heads: a latent of `rank` numbers and a rotated key of rotary_dims. A page holds
// LatentRowBytes (kv_rows.h) for each of its positions, one row after the other.
struct LatentShape {
  int heads = 0;
  int rank = 0;  // with rotary_dims at most kMostHeadDim
  int rotary_dims = 0;
  int page_tokens = kKvPageTokens;
  float scale = 0;  // score = scale * (dot(query, latent) + dot(rotated query, rotated key))
  KvFormat kv_format = KvFormat::kF32;
};

// Of the first rotary_dims dimensions of a head, pair i is (i, i + rotary_dims / 2), the Hugging Face half-split form.
// Interleaved, it comes as (2 i, 2 i + 1) and leaves as the former: queries and keys change their order alike.
struct RopeShape {
  int heads = 0;
  int head_dim = 0;     // at most kMostHeadDim
  int rotary_dims = 0;  // even, at most head_dim
  bool interleaved = false;
  float magnitude = 1;  // what is rotated is multiplied by it before
};

// What heads of queries and keys become before attention reads them: their RMS norm, each by itself, and rotated.
struct HeadTransform {
  const float* query_norm = nullptr;  // (head_dim): weights; null: no norm
  const float* key_norm = nullptr;    // (head_dim)
  float eps = 0;
  bool norm_last = false;  // behind the rotation
  int rotary_dims = 0;     // as RopeShape's; 0: no rotation
  bool interleaved = false;
  const float* inv_freq = nullptr;  // (rotary_dims / 2)
  float magnitude = 1;              // as RopeShape's
};

inline constexpr int32_t kNoOutput = -1;

// What a layer with experts adds to the residual stream. Each row in this order: slot after slot weight * output, then the shared
// expert's output times the sigmoid of its gate times shared_scale. The weight of a slot is that of its choice times scale,
// then times its expert's.
struct CombineJob {
  int rows = 0;
  int cols = 0;
  int top_k = 0;
  const ExpertChoice* choices = nullptr;  // (rows, top_k): their weights
  float scale = 1;
  const float* expert_scales = nullptr;  // (experts): further factors of their weights; null: none
  std::span<const int32_t> places;       // (rows, top_k): which row of `outputs` is the slot's; kNoOutput: it adds nothing
  const float* outputs = nullptr;        // (any, cols)
  const float* shared = nullptr;         // (rows, cols); null: no shared expert
  const float* shared_gate = nullptr;    // (rows); null: the shared expert's weight is shared_scale
  float shared_scale = 1;
  float* x = nullptr;  // (rows, cols)
  bool adds = true;    // to x; otherwise to zero
};

// Thread contract: one call at a time; work inside goes over the executor given at construction. Operations do not fail: shapes
// are checked by the caller, which built them from a validated model. A device may, which Fence tells. x and y are rows of `cols`
// floats, one after the other.
class ComputeBackend {
 public:
  virtual ~ComputeBackend() = default;
  virtual std::string_view name() const = 0;  // "scalar", "avx2"
  virtual int threads() const = 0;
  // All that operations are given lies in it.
  virtual BackendMemory& memory() = 0;

  // Returns when everything enqueued has run, or never will. The only wait. An error, with the backend's name in it: what was
  // enqueued since the last Fence may have put out anything. Some errors pass, others are those of every later Fence too.
  virtual absl::Status Fence() = 0;
  // What is enqueued begins to run, where it might have waited for more until the next Fence: before the host waits for others.
  virtual void Begin() {}
  // Whether it pays to enqueue a step without a wait in it. BeginWholeStep then says that what is enqueued until the next Fence
  // is one, however much it is.
  virtual bool gains_by_whole_steps() const { return false; }
  virtual void BeginWholeStep() {}
  // Whether everything enqueued has run, or failed, without waiting.
  virtual bool Idle() const = 0;
  // What is enqueued from here on runs after the event, which is of this backend's device.
  virtual void Await(const ReadyEvent& event) = 0;

  // y (tokens, matrix.cols) = the matrix's rows of these numbers.
  virtual void Embed(const MatrixView& matrix, std::span<const TokenId> tokens, float* y) = 0;
  // y (rows.size(), cols) = rows of x; apart from x.
  virtual void GatherRows(const float* x, int cols, std::span<const int32_t> rows, float* y) = 0;

  // x (tokens, cols) with `stride` floats from token to token, in the forms asked for. The result points into `storage`.
  virtual Activations Prepare(const float* x, int tokens, int cols, int64_t stride, InputForms forms,
                              std::span<std::byte> storage) = 0;
  // Those rows of prepared activations, in the same forms. The result points into `storage`, which is not theirs.
  virtual Activations Gather(const Activations& from, std::span<const int32_t> rows, std::span<std::byte> storage) = 0;

  // All jobs in one parallel region (query, key and value; gate and up). No output is another job's input.
  virtual void MatMul(std::span<const MatMulJob> jobs) = 0;
  // From here on MatMulJob::halves is of use. FAILED_PRECONDITION: this backend has nothing but exact products, or lacks a
  // library, by name.
  virtual absl::Status OpenFastMatmul();
  // Enough for all of a matrix at once as far as that takes no more than 32 MiB; tokens, rows and cols are the most of all jobs.
  static size_t HalfProductBytes(int tokens, int rows, int cols);

  // y = x * weight / sqrt(mean(x^2) + eps), row by row, or (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias. x, y
  // (rows, cols), may alias.
  virtual void Normalize(const Norm& norm, const float* x, int rows, int cols, float* y) = 0;
  // The same, and y prepared, into `storage`.
  virtual Activations NormalizeAndPrepare(const Norm& norm, const float* x, int rows, int cols, float* y, InputForms forms,
                                          std::span<std::byte> storage);
  // x = scale * x, n elements.
  virtual void Scale(float* x, float scale, int64_t n) = 0;

  // Rotates the pairs of each head. x (tokens, heads, head_dim) with `stride` floats from token to token, in place; positions
  // (tokens); inv_freq (rotary_dims / 2).
  virtual void Rope(const RopeShape& shape, float* x, int tokens, int64_t stride, const int32_t* positions,
                    const float* inv_freq) = 0;

  // Puts keys and values, both (rows, kv_heads, head_dim), into the pages of their runs.
  virtual void StoreKv(const AttentionShape& shape, std::span<const KvRun> runs, const float* keys, const float* values) = 0;
  // Queries (rows, heads, head_dim) are transformed in place; transformed keys, and values, go into the pages of their runs.
  // positions (rows). Afterwards anything may be in `keys`.
  virtual void TransformAndStore(const AttentionShape& shape, const HeadTransform& transform, std::span<const KvRun> runs,
                                 const int32_t* positions, float* query, float* keys, const float* values);

  // softmax(scale * q K^T) V per head; head h reads kv head h / (heads / kv_heads), a row the positions of its window up to its
  // own, or those that its run says. query and output (rows, heads, head_dim). `scores`: storage of
  // AttentionScratchFloats(threads, longest) floats.
  virtual void Attention(const AttentionShape& shape, std::span<const KvRun> runs, const float* query, float* output,
                         std::span<float> scores) = 0;
  static size_t AttentionScratchFloats(int threads, int longest);

  // Puts latents (rows, rank) and rotated keys (rows, rotary_dims) into the pages of their runs.
  virtual void StoreLatent(const LatentShape& shape, std::span<const KvRun> runs, const float* latents, const float* rotated) = 0;

  // softmax(scores) times the latents, per head. query and output (rows, heads, rank), which may be the same; rotated (rows,
  // heads, rotary_dims) with `rotated_stride` floats from head to head, the next row's first behind the last. `scores`: storage
  // of LatentScratchFloats(threads, longest) floats.
  virtual void AttendLatent(const LatentShape& shape, std::span<const KvRun> runs, const float* query, const float* rotated,
                            int64_t rotated_stride, float* output, std::span<float> scores) = 0;
  static size_t LatentScratchFloats(int threads, int longest);

  // y = x convolved with `weights` (taps, channels), the latest position's last, and its bias added; or what silu makes of that.
  // x, y (rows, channels), apart. States (taps - 1, channels): the inputs before the run, the oldest first.
  virtual void Convolve(const ConvolutionShape& shape, std::span<const StateRun> runs, const float* x, const float* weights,
                        float* y) = 0;
  // a (rows, heads, decays) becomes the decay of the heads' states, b (rows, heads) the rate at which they learn. bias (heads,
  // decays); decay_rates (heads), negative.
  virtual void DeltaGates(float* a, float* b, const float* bias, const float* decay_rates, int rows, int heads, int decays) = 0;
  // The gated delta rule (Yang et al., Gated Delta Networks, arXiv 2412.06464, equation 10), a token after the other: what the
  // decayed state holds for the key comes nearer to the value, then the query reads it. Where decays are those of channels it is
  // Kimi Delta Attention (arXiv 2510.26692, section 3). x (rows, shape.row()); decay (rows, value_heads, shape.decays()); rate
  // (rows, value_heads); output (rows, shape.output_row()); states (value_heads, key_dim, value_dim).
  virtual void DeltaRule(const DeltaRuleShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                         const float* rate, float* output) = 0;
  // steps (rows, heads) become positive step sizes, decays (rows, heads) what a step leaves of the heads' states. bias (heads);
  // decay_rates (heads), negative.
  virtual void StepSizes(float* steps, const float* bias, const float* decay_rates, int rows, int heads, float* decays) = 0;
  // The selective state space of Mamba-2 (Dao and Gu, arXiv 2405.21060, section 2.1), a token after the other: the decayed
  // state learns the value times its step size for the key, then the query reads it; the value itself is added `skip` times. x
  // (rows, shape.row()); decay, steps (rows, value_heads); skip (value_heads); output (rows, shape.output_row()); states
  // (value_heads, key_dim, value_dim).
  virtual void StateSpace(const StateSpaceShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                          const float* steps, const float* skip, float* output) = 0;

  // x = x * by, n elements.
  virtual void Multiply(float* x, const float* by, int64_t n) = 0;
  // x = x * sigmoid(gate), n elements; gate may be x.
  virtual void SigmoidGate(float* x, const float* gate, int64_t n) = 0;
  // x (n, width): each row times the softplus of its gate, of n gates.
  virtual void SoftplusGate(float* x, const float* gates, int64_t n, int width) = 0;

  // out = silu(gate) * up or another function of both, n elements; out may alias either. Where there is no gate it is null.
  virtual void Activate(const FfnActivation& activation, const float* gate, const float* up, int64_t n, float* out) = 0;
  // That of (rows, cols), prepared, into `storage`. Afterwards anything may be in `up`.
  virtual Activations ActivateAndPrepare(const FfnActivation& activation, const float* gate, float* up, int rows, int cols,
                                         InputForms forms, std::span<std::byte> storage);
  // x = cap * tanh(x / cap), n elements.
  virtual void SoftCap(float* x, float cap, int64_t n) = 0;
  // In place over rows of cols.
  virtual void Softmax(float* x, int rows, int cols) = 0;
  // logits (rows, experts) become scores: probabilities by softmax, or ScoreExperts (router.h) of each row; choices (rows,
  // top_k): its ChooseExperts; in memory that the host reads.
  virtual void Route(const RouterShape& shape, float* logits, int rows, ExpertChoice* choices) = 0;
  // logits (rows, experts) become what RankExperts (router.h) makes of each row's scores, for those who look ahead.
  virtual void Rank(const RouterShape& shape, float* logits, int rows) = 0;
  virtual void Combine(const CombineJob& job) = 0;
  // y = fma(scale, x, y), n elements.
  virtual void AddScaled(float* y, const float* x, float scale, int64_t n) = 0;
  // y = y + x.
  virtual void Add(float* y, const float* x, int64_t n) = 0;
};

// One row per implementation, slowest first; "scalar" always works.
struct ComputeBackendRow {
  std::string_view name;
  bool (*supported)();                                                          // by this machine
  absl::Status (*refusal)();                                                    // why not, where it is not supported
  absl::StatusOr<std::unique_ptr<ComputeBackend>> (*make)(Executor& executor);  // where it is; a device may fail all the same
};
std::span<const ComputeBackendRow> ComputeBackends();
// A row's `name`, or "auto": the CPU's last supported row. INVALID_ARGUMENT names the known ones; FAILED_PRECONDITION when this
// machine lacks it. The executor must outlive the backend.
absl::StatusOr<std::unique_ptr<ComputeBackend>> MakeComputeBackend(std::string_view name, Executor& executor);

}  // namespace moed
