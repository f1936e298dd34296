// Reads lie under compute: where a read takes no longer than the products of an expert or of the shared expert, its time passes
// while the model computes. Time is counted in ticks, which pass where the test says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/expert/predictors/table.h"
#include "core/io/file.h"
#include "tests/io/lying_file.h"
#include "tests/system/demo_rig.h"
#include "tests/system/passing_provider.h"

namespace moed::testing {
namespace {

constexpr int kReadTicks = 4;
constexpr int kProductTicks = 3;

// A device that reads one record after the other, a processor, and the time that passes for both.
class Ticks {
 public:
  explicit Ticks(std::shared_ptr<const RandomAccessFile> file) : reads_(1, std::move(file)) {}
  ReadBackend& reads() { return reads_; }

  void Compute(int ticks) {
    while (ticks > 0 && Reading()) {
      const int passed = std::min(ticks, kReadTicks - of_this_read_);
      under_compute_ += passed;
      ticks -= passed;
      of_this_read_ += passed;
      if (of_this_read_ == kReadTicks) EndRead();
    }
  }
  // The engine has nothing to do before the read ends.
  void Wait() {
    MOED_CHECK(Reading());
    EndRead();
  }
  void EndReads() {
    while (Reading()) EndRead();
  }
  int read_count() const { return read_count_; }
  double ShareUnderCompute() const { return static_cast<double>(under_compute_) / (read_count_ * kReadTicks); }

 private:
  bool Reading() const { return !reads_.pending().empty(); }
  void EndRead() {
    of_this_read_ = 0;
    ++read_count_;
    reads_.CompleteNext();
  }

  ManualReadBackend reads_;
  int of_this_read_ = 0;
  int under_compute_ = 0;
  int read_count_ = 0;
};

// Where the engine would wait for an expert, time passes.
class WaitingProvider final : public PassingProvider {
 public:
  WaitingProvider(ExpertProvider& next, Ticks& ticks) : PassingProvider(next), ticks_(ticks) {}
  void Begin(const LayerRouting& routing) override {
    std::set<int32_t> wanted;
    for (const TokenRouting& token : routing.tokens) {
      for (const ExpertChoice& choice : token.choices) wanted.insert(choice.expert);
    }
    missing_ = wanted.size();
    PassingProvider::Begin(routing);
  }
  std::optional<ReadyExpert> Next() override {
    while (missing_ > 0) {
      if (auto ready = NextReady()) return ready;
      ticks_.Wait();
    }
    return PassingProvider::Next();
  }
  std::optional<ReadyExpert> NextReady() override {
    auto ready = PassingProvider::NextReady();
    if (ready) --missing_;
    return ready;
  }

 private:
  Ticks& ticks_;
  size_t missing_ = 0;
};

// A processor whose matrix products take their time.
class SlowBackend final : public ComputeBackend {
 public:
  SlowBackend(ComputeBackend& next, Ticks& ticks) : next_(next), ticks_(ticks) {}
  std::string_view name() const override { return "slow"; }
  int threads() const override { return next_.threads(); }
  BackendMemory& memory() override { return next_.memory(); }
  absl::Status Fence() override { return next_.Fence(); }
  bool Idle() const override { return next_.Idle(); }
  void Await(const ReadyEvent& event) override { next_.Await(event); }
  void Embed(const MatrixView& matrix, std::span<const TokenId> tokens, float* y) override { next_.Embed(matrix, tokens, y); }
  void GatherRows(const float* x, int cols, std::span<const int32_t> rows, float* y) override {
    next_.GatherRows(x, cols, rows, y);
  }
  Activations Prepare(const float* x, int tokens, int cols, int64_t stride, InputForms forms,
                      std::span<std::byte> storage) override {
    return next_.Prepare(x, tokens, cols, stride, forms, storage);
  }
  Activations Gather(const Activations& from, std::span<const int32_t> rows, std::span<std::byte> storage) override {
    return next_.Gather(from, rows, storage);
  }
  void MatMul(std::span<const MatMulJob> jobs) override {
    ticks_.Compute(kProductTicks);
    next_.MatMul(jobs);
  }
  void Normalize(const Norm& norm, const float* x, int rows, int cols, float* y) override {
    next_.Normalize(norm, x, rows, cols, y);
  }
  void Scale(float* x, float scale, int64_t n) override { next_.Scale(x, scale, n); }
  void Rope(const RopeShape& shape, float* x, int tokens, int64_t stride, const int32_t* positions,
            const float* inv_freq) override {
    next_.Rope(shape, x, tokens, stride, positions, inv_freq);
  }
  void StoreKv(const AttentionShape& shape, std::span<const KvRun> runs, const float* keys, const float* values) override {
    next_.StoreKv(shape, runs, keys, values);
  }
  void Attention(const AttentionShape& shape, std::span<const KvRun> runs, const float* query, float* output,
                 std::span<float> scores) override {
    next_.Attention(shape, runs, query, output, scores);
  }
  void StoreLatent(const LatentShape& shape, std::span<const KvRun> runs, const float* latents, const float* rotated) override {
    next_.StoreLatent(shape, runs, latents, rotated);
  }
  void AttendLatent(const LatentShape& shape, std::span<const KvRun> runs, const float* query, const float* rotated,
                    int64_t rotated_stride, float* output, std::span<float> scores) override {
    next_.AttendLatent(shape, runs, query, rotated, rotated_stride, output, scores);
  }
  void Convolve(const ConvolutionShape& shape, std::span<const StateRun> runs, const float* x, const float* weights,
                float* y) override {
    next_.Convolve(shape, runs, x, weights, y);
  }
  void DeltaGates(float* a, float* b, const float* bias, const float* decay_rates, int rows, int heads, int decays) override {
    next_.DeltaGates(a, b, bias, decay_rates, rows, heads, decays);
  }
  void DeltaRule(const DeltaRuleShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                 const float* rate, float* output) override {
    next_.DeltaRule(shape, runs, x, decay, rate, output);
  }
  void StepSizes(float* steps, const float* bias, const float* decay_rates, int rows, int heads, float* decays) override {
    next_.StepSizes(steps, bias, decay_rates, rows, heads, decays);
  }
  void StateSpace(const StateSpaceShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                  const float* steps, const float* skip, float* output) override {
    next_.StateSpace(shape, runs, x, decay, steps, skip, output);
  }
  void Multiply(float* x, const float* by, int64_t n) override { next_.Multiply(x, by, n); }
  void SigmoidGate(float* x, const float* gate, int64_t n) override { next_.SigmoidGate(x, gate, n); }
  void SoftplusGate(float* x, const float* gates, int64_t n, int width) override { next_.SoftplusGate(x, gates, n, width); }
  void Activate(const FfnActivation& activation, const float* gate, const float* up, int64_t n, float* out) override {
    next_.Activate(activation, gate, up, n, out);
  }
  void SoftCap(float* x, float cap, int64_t n) override { next_.SoftCap(x, cap, n); }
  void Softmax(float* x, int rows, int cols) override { next_.Softmax(x, rows, cols); }
  void Route(const RouterShape& shape, float* logits, int rows, ExpertChoice* choices) override {
    next_.Route(shape, logits, rows, choices);
  }
  void Rank(const RouterShape& shape, float* logits, int rows) override { next_.Rank(shape, logits, rows); }
  void Combine(const CombineJob& job) override { next_.Combine(job); }
  void AddScaled(float* y, const float* x, float scale, int64_t n) override { next_.AddScaled(y, x, scale, n); }
  void Add(float* y, const float* x, int64_t n) override { next_.Add(y, x, n); }

 private:
  ComputeBackend& next_;
  Ticks& ticks_;
};

double OverlapShare(const std::string& predictor) {
  RigOptions options;
  options.predictor = predictor;
  options.slots = 24;
  options.max_reads_in_flight = 1;
  const auto executor = MakeThreadPool(1);
  const auto backend = MakeComputeBackend("auto", *executor).value();
  Ticks ticks(OpenBuffered(DemoStorePath(options.expert_formats)).value());
  SlowBackend slow(*backend, ticks);
  Rig rig(options, &ticks.reads(), &slow);
  WaitingProvider waiting(rig.provider(), ticks);
  rig.recorder = &waiting;
  rig.Greedy(Tokens({0, 700, 701, 15}), 10, 4);
  EXPECT_GT(ticks.read_count(), 100);
  const double share = ticks.ShareUnderCompute();
  ticks.EndReads();
  return share;
}

TEST(Overlap, MostReadTimeLiesUnderCompute) {
  for (const PredictorRow& predictor : Predictors()) {
    if (!predictor.mask.empty()) continue;  // only with its mask
    const double share = OverlapShare(std::string(predictor.name));
    RecordProperty(std::string(predictor.name), std::to_string(share));
    EXPECT_GE(share, 0.9) << predictor.name;
  }
}

}  // namespace
}  // namespace moed::testing
