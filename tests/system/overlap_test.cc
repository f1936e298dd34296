// Reads lie under compute: on a slow device and with slow kernels, the trace must show most of the read time while the model
// computes. Both are slowed by much more than this machine's noise; the bound is a share, not a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/expert/predictors/table.h"
#include "core/io/file.h"
#include "tests/system/demo_rig.h"

namespace moed::testing {
namespace {

constexpr auto kReadTime = std::chrono::microseconds(2000);
constexpr auto kProductTime = std::chrono::microseconds(1500);

// A device that takes its time for every read.
class SlowFile final : public RandomAccessFile {
 public:
  explicit SlowFile(std::unique_ptr<RandomAccessFile> file) : file_(std::move(file)) {}
  uint64_t size() const override { return file_->size(); }
  const std::string& path() const override { return file_->path(); }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    std::this_thread::sleep_for(kReadTime);
    return file_->ReadAt(offset, out);
  }

 private:
  std::unique_ptr<RandomAccessFile> file_;
};

// A processor whose matrix products take their time.
class SlowBackend final : public ComputeBackend {
 public:
  explicit SlowBackend(ComputeBackend& next) : next_(next) {}
  std::string_view name() const override { return "slow"; }
  int threads() const override { return next_.threads(); }
  void Fence() override { next_.Fence(); }
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
  void AddBias(float* x, const float* bias, int rows, int cols) override { next_.AddBias(x, bias, rows, cols); }
  void MatMul(std::span<const MatMulJob> jobs) override {
    std::this_thread::sleep_for(kProductTime);
    next_.MatMul(jobs);
  }
  void RmsNorm(const float* x, const float* w, float eps, int rows, int cols, float* y) override {
    next_.RmsNorm(x, w, eps, rows, cols, y);
  }
  void LayerNorm(const float* x, const float* weight, const float* bias, float eps, int rows, int cols, float* y) override {
    next_.LayerNorm(x, weight, bias, eps, rows, cols, y);
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
  void Convolve(const ConvolutionShape& shape, std::span<const StateRun> runs, const float* x, const float* weights,
                float* y) override {
    next_.Convolve(shape, runs, x, weights, y);
  }
  void DeltaGates(float* a, float* b, const float* bias, const float* decay_rates, int rows, int heads) override {
    next_.DeltaGates(a, b, bias, decay_rates, rows, heads);
  }
  void DeltaRule(const DeltaRuleShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                 const float* rate, float* output) override {
    next_.DeltaRule(shape, runs, x, decay, rate, output);
  }
  void SigmoidGate(float* x, const float* gate, int64_t n) override { next_.SigmoidGate(x, gate, n); }
  void SwiGlu(const float* gate, const float* up, int64_t n, float* out) override { next_.SwiGlu(gate, up, n, out); }
  void ClampedSwiGlu(const SwiGluClamp& clamp, const float* gate, const float* up, int64_t n, float* out) override {
    next_.ClampedSwiGlu(clamp, gate, up, n, out);
  }
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
};

using Interval = std::pair<int64_t, int64_t>;

// Overlapping intervals joined, ascending.
std::vector<Interval> Union(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> joined;
  for (const Interval& i : intervals) {
    if (!joined.empty() && i.first <= joined.back().second) {
      joined.back().second = std::max(joined.back().second, i.second);
    } else {
      joined.push_back(i);
    }
  }
  return joined;
}

double ShareUnder(const std::vector<Interval>& reads, const std::vector<Interval>& compute) {
  int64_t total = 0;
  int64_t covered = 0;
  for (const Interval& read : reads) {
    total += read.second - read.first;
    for (const Interval& c : compute)
      covered += std::max<int64_t>(0, std::min(read.second, c.second) - std::max(read.first, c.first));
  }
  return static_cast<double>(covered) / static_cast<double>(total);
}

double OverlapShare(const std::string& predictor) {
  Trace trace(Clock::Real(), 1 << 16);
  RigOptions options;
  options.predictor = predictor;
  options.slots = 24;
  options.max_reads_in_flight = 1;
  options.trace = &trace;
  auto executor = MakeThreadPool(1);
  auto backend = *MakeComputeBackend("auto", *executor);
  SlowBackend slow(*backend);
  std::shared_ptr<const RandomAccessFile> file = std::make_shared<SlowFile>(*OpenBuffered(DemoStorePath(options.expert_formats)));
  auto reads = MakeThreadedReadBackend("slow", file, 1);
  {
    Rig rig(options, reads.get(), &slow);
    rig.Greedy(Tokens({0, 700, 701, 15}), 10, 4);
  }
  EXPECT_EQ(trace.dropped(), 0u);
  std::vector<Interval> read_spans;
  std::vector<Interval> compute_spans;
  for (const TraceEvent& e : trace.Events()) {
    const std::string_view name = e.name;
    if (name == "read") read_spans.emplace_back(e.begin_nanos, e.end_nanos);
    if (e.track == kComputeTrack && name != "step" && name != "wait") compute_spans.emplace_back(e.begin_nanos, e.end_nanos);
  }
  EXPECT_GT(read_spans.size(), 100u);
  return ShareUnder(Union(read_spans), Union(compute_spans));
}

TEST(Overlap, MostReadTimeLiesUnderCompute) {
  for (const PredictorRow& predictor : Predictors()) {
    if (!predictor.mask.empty()) continue;  // only with its mask
    const double share = OverlapShare(std::string(predictor.name));
    RecordProperty(std::string(predictor.name), std::to_string(share));
    EXPECT_GE(share, 0.6) << predictor.name;
  }
}

}  // namespace
}  // namespace moed::testing
