// The contract of core/kernels/backend.h as the decoder keeps it: on a backend that runs nothing before a Fence, the logits are
// the same bits, a layer whose experts are there costs one Fence and a step one more, and what an operation reads is there when
// it runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <random>

#include "tests/model/packed_model.h"

namespace moed {
namespace {

// A backend that keeps every operation, with copies of what the contract says is copied, until Fence runs them. It looks as
// slow as a device can be: whatever the host reads too early is from the step or layer before, or no number at all.
class QueueBackend final : public ComputeBackend {
 public:
  explicit QueueBackend(ComputeBackend& next) : next_(next) {}

  std::string_view name() const override { return "queue"; }
  int threads() const override { return next_.threads(); }
  BackendMemory& memory() override { return next_.memory(); }
  bool Idle() const override { return queue_.empty(); }
  absl::Status Fence() override {
    ++fences;
    for (const std::function<void()>& operation : queue_) operation();
    queue_.clear();
    return next_.Fence();
  }
  void Await(const ReadyEvent& event) override {
    Enqueue([this, &event] { awaited.push_back(&event); });
  }
  int fences = 0;
  std::vector<const ReadyEvent*> awaited;
  bool attends_nothing = false;  // attention adds zeros

  void Embed(const MatrixView& matrix, std::span<const TokenId> tokens, float* y) override {
    Enqueue([=, this, tokens = Copy(tokens)] { next_.Embed(matrix, tokens, y); });
  }
  void GatherRows(const float* x, int cols, std::span<const int32_t> rows, float* y) override {
    Enqueue([=, this, rows = Copy(rows)] { next_.GatherRows(x, cols, rows, y); });
  }
  Activations Prepare(const float* x, int tokens, int cols, int64_t stride, InputForms forms,
                      std::span<std::byte> storage) override {
    Enqueue([=, this] { next_.Prepare(x, tokens, cols, stride, forms, storage); });
    return ActivationsIn(storage, tokens, cols, forms);
  }
  Activations Gather(const Activations& from, std::span<const int32_t> rows, std::span<std::byte> storage) override {
    Enqueue([=, this, rows = Copy(rows)] { next_.Gather(from, rows, storage); });
    return ActivationsIn(storage, static_cast<int>(rows.size()), from.cols, from.forms());
  }
  void MatMul(std::span<const MatMulJob> jobs) override {
    std::vector<Activations> inputs;
    for (const MatMulJob& job : jobs) inputs.push_back(*job.input);
    Enqueue([this, inputs, jobs = Copy(jobs)]() mutable {
      for (size_t i = 0; i < jobs.size(); ++i) jobs[i].input = &inputs[i];
      next_.MatMul(jobs);
    });
  }
  void Normalize(const Norm& norm, const float* x, int rows, int cols, float* y) override {
    Enqueue([=, this] { next_.Normalize(norm, x, rows, cols, y); });
  }
  void Scale(float* x, float scale, int64_t n) override {
    Enqueue([=, this] { next_.Scale(x, scale, n); });
  }
  void Rope(const RopeShape& shape, float* x, int tokens, int64_t stride, const int32_t* positions,
            const float* inv_freq) override {
    Enqueue([=, this, positions = Copy(std::span(positions, tokens))] {
      next_.Rope(shape, x, tokens, stride, positions.data(), inv_freq);
    });
  }
  void StoreKv(const AttentionShape& shape, std::span<const KvRun> runs, const float* keys, const float* values) override {
    Enqueue([=, this, copy = Runs(runs)] { next_.StoreKv(shape, copy.runs, keys, values); });
  }
  void Attention(const AttentionShape& shape, std::span<const KvRun> runs, const float* query, float* output,
                 std::span<float> scores) override {
    Enqueue([=, this, copy = Runs(runs)] {
      next_.Attention(shape, copy.runs, query, output, scores);
      if (attends_nothing) copy.Clear(output, shape.heads * shape.head_dim);
    });
  }
  void Convolve(const ConvolutionShape& shape, std::span<const StateRun> runs, const float* x, const float* weights,
                float* y) override {
    Enqueue([=, this, runs = Copy(runs)] { next_.Convolve(shape, runs, x, weights, y); });
  }
  void DeltaGates(float* a, float* b, const float* bias, const float* decay_rates, int rows, int heads, int decays) override {
    Enqueue([=, this] { next_.DeltaGates(a, b, bias, decay_rates, rows, heads, decays); });
  }
  void DeltaRule(const DeltaRuleShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                 const float* rate, float* output) override {
    Enqueue([=, this, runs = Copy(runs)] { next_.DeltaRule(shape, runs, x, decay, rate, output); });
  }
  void StepSizes(float* steps, const float* bias, const float* decay_rates, int rows, int heads, float* decays) override {
    Enqueue([=, this] { next_.StepSizes(steps, bias, decay_rates, rows, heads, decays); });
  }
  void StateSpace(const StateSpaceShape& shape, std::span<const StateRun> runs, const float* x, const float* decay,
                  const float* steps, const float* skip, float* output) override {
    Enqueue([=, this, runs = Copy(runs)] { next_.StateSpace(shape, runs, x, decay, steps, skip, output); });
  }
  void Multiply(float* x, const float* by, int64_t n) override {
    Enqueue([=, this] { next_.Multiply(x, by, n); });
  }
  void SigmoidGate(float* x, const float* gate, int64_t n) override {
    Enqueue([=, this] { next_.SigmoidGate(x, gate, n); });
  }
  void SoftplusGate(float* x, const float* gates, int64_t n, int width) override {
    Enqueue([=, this] { next_.SoftplusGate(x, gates, n, width); });
  }
  void StoreLatent(const LatentShape& shape, std::span<const KvRun> runs, const float* latents, const float* rotated) override {
    Enqueue([=, this, copy = Runs(runs)] { next_.StoreLatent(shape, copy.runs, latents, rotated); });
  }
  void AttendLatent(const LatentShape& shape, std::span<const KvRun> runs, const float* query, const float* rotated,
                    int64_t rotated_stride, float* output, std::span<float> scores) override {
    Enqueue([=, this, copy = Runs(runs)] {
      next_.AttendLatent(shape, copy.runs, query, rotated, rotated_stride, output, scores);
      if (attends_nothing) copy.Clear(output, shape.heads * shape.rank);
    });
  }
  void Activate(const FfnActivation& activation, const float* gate, const float* up, int64_t n, float* out) override {
    Enqueue([=, this] { next_.Activate(activation, gate, up, n, out); });
  }
  void SoftCap(float* x, float cap, int64_t n) override {
    Enqueue([=, this] { next_.SoftCap(x, cap, n); });
  }
  void Softmax(float* x, int rows, int cols) override {
    Enqueue([=, this] { next_.Softmax(x, rows, cols); });
  }
  void Route(const RouterShape& shape, float* logits, int rows, ExpertChoice* choices) override {
    Enqueue([=, this] { next_.Route(shape, logits, rows, choices); });
  }
  void Rank(const RouterShape& shape, float* logits, int rows) override {
    Enqueue([=, this] { next_.Rank(shape, logits, rows); });
  }
  void Combine(const CombineJob& job) override {
    Enqueue([=, this, places = Copy(job.places)]() mutable {
      CombineJob copy = job;
      copy.places = places;
      next_.Combine(copy);
    });
  }
  void AddScaled(float* y, const float* x, float scale, int64_t n) override {
    Enqueue([=, this] { next_.AddScaled(y, x, scale, n); });
  }
  void Add(float* y, const float* x, int64_t n) override {
    Enqueue([=, this] { next_.Add(y, x, n); });
  }

 private:
  // With their lists of pages.
  struct Runs {
    explicit Runs(std::span<const KvRun> given) : runs(Copy(given)) {
      for (const KvRun& run : given) pages.push_back(Copy(run.pages));
      for (size_t i = 0; i < runs.size(); ++i) runs[i].pages = pages[i];
    }
    Runs(const Runs& other) : Runs(std::span(other.runs)) {}
    void Clear(float* output, int cols) const {
      for (const KvRun& run : runs) output = std::fill_n(output, run.tokens * cols, 0.f);
    }
    std::vector<KvRun> runs;
    std::vector<std::vector<std::byte*>> pages;
  };

  void Enqueue(std::function<void()> operation) { queue_.push_back(std::move(operation)); }
  template <class T>
  static std::vector<std::remove_const_t<T>> Copy(std::span<T> items) {
    return {items.begin(), items.end()};
  }

  ComputeBackend& next_;
  std::vector<std::function<void()>> queue_;
};

class QueueTest : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<TokenId> Tokens(int first, int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(TokenId((first + 29 * i) % 256));
    return tokens;
  }
  int MoeLayers(PackedModel& model) const { return static_cast<int>(model.spec().MoeLayers().size()); }

  const StoreReader& store_ = PackedStore(GetParam(), FormatId::kQ4);
  MemoryProvider provider_{store_};
  InlineExecutor executor_;
  std::unique_ptr<ComputeBackend> scalar_ = MakeComputeBackend("scalar", executor_).value();
  QueueBackend queue_{*scalar_};
  ModelSetup queued_{.use_backend = &queue_};
};

// Prompts of several blocks, then answers; steps of own and of lent memory.
TEST_P(QueueTest, TheSameBitsInWhateverOrderExpertsCome) {
  for (const int own : {0, 8}) {
    queued_.own_step_tokens = own;
    PackedModel queued(store_, queued_);
    PackedModel direct(store_, {.own_step_tokens = own});
    std::vector<TestSequence> expected_of(2), got_of(2);
    for (const int count : {70, 3, 1, 1}) {
      const std::vector<TokenId> tokens[] = {Tokens(5, count), Tokens(90, std::min(count, 20))};
      const auto step = [&](PackedModel& model, std::vector<TestSequence>& sequences) {
        SequenceChunk chunks[] = {
            {.sequence = SequenceId(0), .tokens = tokens[0], .kv = &sequences[0].kv, .first_logits = count - 1},
            {.sequence = SequenceId(1), .tokens = tokens[1], .kv = &sequences[1].kv, .first_logits = std::min(count, 20) - 1}};
        return model.Step(provider_, chunks);
      };
      const std::vector<Logits> expected = step(direct, expected_of);
      queue_.fences = 0;
      provider_.ShuffleWith(count);
      const std::vector<Logits> got = step(queued, got_of);
      EXPECT_GE(queue_.fences, MoeLayers(queued) + 1);  // and where experts are not there one more
      EXPECT_TRUE(queue_.Idle());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(SameBits(got[i], expected[i])) << count << " tokens, sequence " << i;
    }
  }
}

// A piece of a prompt whose logits nobody wants still ends with nothing under way.
TEST_P(QueueTest, AStepWithoutLogitsEndsIdle) {
  PackedModel queued(store_, queued_), direct(store_);
  const std::vector<TokenId> tokens = Tokens(1, 12);
  const auto feed = [&](PackedModel& model) {
    TestSequence sequence;
    SequenceChunk first = {.tokens = std::span(tokens).first(9), .kv = &sequence.kv, .first_logits = 9};
    EXPECT_TRUE(model.Step(provider_, std::span(&first, 1))[0].empty());
    EXPECT_TRUE(queue_.Idle());
    SequenceChunk rest = {.tokens = std::span(tokens).subspan(9), .kv = &sequence.kv};
    return model.Step(provider_, std::span(&rest, 1))[0];
  };
  const Logits expected = feed(direct);
  queue_.fences = 0;
  EXPECT_TRUE(SameBits(feed(queued), expected));
  EXPECT_EQ(queue_.fences, 2 * (MoeLayers(queued) + 1));
}

// What the experts' operations read stays pinned until they have run.
TEST_P(QueueTest, ExpertsStayPinnedUntilTheNextFence) {
  PackedModel queued(store_, queued_);
  int layers = 0;
  provider_.on_begin = [&](const LayerRouting&) { EXPECT_EQ(provider_.pins() > 0, layers++ > 0); };
  TestSequence sequence;
  queued.Feed(provider_, sequence, Tokens(3, 5), 5);
  EXPECT_EQ(layers, MoeLayers(queued));
  EXPECT_EQ(provider_.pins(), 0);
}

// Every matrix of an expert is waited for in the queue, not by the host; those that come together once.
TEST_P(QueueTest, PartsAreAwaitedInTheQueue) {
  PackedModel queued(store_, queued_), direct(store_);
  const std::vector<TokenId> tokens = Tokens(3, 1);
  const auto used = static_cast<size_t>(queued.spec().top_k * MoeLayers(queued));
  const std::array<std::max_align_t, kExpertParts> events = {};
  for (const bool together : {false, true}) {
    TestSequence expected_of, got_of;
    provider_.ready = {};
    const Logits expected = direct.Feed(provider_, expected_of, tokens, 1);
    for (size_t part = 0; part < kExpertParts; ++part) {
      provider_.ready[part] = reinterpret_cast<const ReadyEvent*>(&events[together ? 0 : part]);
    }
    queue_.awaited.clear();
    EXPECT_TRUE(SameBits(queued.Feed(provider_, got_of, tokens, 1), expected));
    EXPECT_EQ(queue_.awaited.size(), used * (together ? 1 : PartCount(store_.description())));
    for (const ReadyEvent* awaited : queue_.awaited) {
      EXPECT_NE(std::find(provider_.ready.begin(), provider_.ready.end(), awaited), provider_.ready.end());
    }
  }
}

// A mask sees the logits before the choice: it costs a second wait, and the choice follows it.
TEST_P(QueueTest, AMaskCostsOneMoreFence) {
  provider_.mask_router = [](LayerId, std::span<float> logits) { logits[1] = -INFINITY; };
  PackedModel queued(store_, queued_), direct(store_);
  TestSequence expected_of, got_of;
  const std::vector<TokenId> tokens = Tokens(7, 10);
  const Logits expected = direct.Feed(provider_, expected_of, tokens, 10);
  EXPECT_EQ(queue_.fences, 0);
  const SequenceChunk chunk = {.tokens = tokens, .kv = &got_of.kv, .first_logits = 9};
  SequenceChunk chunks[] = {chunk};
  EXPECT_TRUE(SameBits(queued.Step(provider_, chunks)[0], {expected.back()}));
  EXPECT_EQ(queue_.fences, 2 * MoeLayers(queued) + 1);
}

// Where attention adds nothing, a preview is what the gate then reads, to the bit. It costs a wait for each sequence, and the
// answer none of its bits.
TEST_P(QueueTest, APreviewIsTheGatesInputWithoutTheMixer) {
  PackedModel model(store_, queued_);
  queue_.attends_nothing = true;
  const std::vector<TokenId> tokens[] = {Tokens(7, 5), Tokens(40, 1)};
  const auto step = [&] {
    TestSequence sequences[2];
    SequenceChunk chunks[] = {{.sequence = SequenceId(0), .tokens = tokens[0], .kv = &sequences[0].kv},
                              {.sequence = SequenceId(1), .tokens = tokens[1], .kv = &sequences[1].kv}};
    std::vector<Logits> logits = model.Step(provider_, chunks);
    for (TestSequence& sequence : sequences) model.kv().Release(sequence.kv);
    return logits;
  };
  const std::vector<Logits> expected = step();
  EXPECT_EQ(provider_.previewed, 0);
  using Rows = std::map<std::pair<LayerId, SequenceId>, std::vector<float>>;
  Rows inputs, previews;
  provider_.on_gate_input = [&](SequenceId sequence, LayerId layer, std::span<const float> hidden) {
    inputs[{layer, sequence}].assign(hidden.begin(), hidden.end());
  };
  provider_.on_gate_preview = [&](SequenceId sequence, LayerId next, std::span<const float> hidden) {
    EXPECT_FALSE(inputs.contains({next, sequence}));
    previews[{next, sequence}].assign(hidden.begin(), hidden.end());
  };
  queue_.fences = 0;
  const std::vector<Logits> got = step();
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(SameBits(got[i], expected[i])) << "sequence " << i;
  const ModelSpec& spec = model.spec();
  size_t layers = 0;
  for (int layer = 1; layer < spec.layers; ++layer) {
    const LayerId next(layer);
    const bool follows = spec.moe[layer - 1] && spec.moe[layer] && spec.HasMixer(next) && !spec.RoutesEarly();
    layers += follows;
    for (const SequenceId sequence : {SequenceId(0), SequenceId(1)}) {
      EXPECT_EQ(previews.contains({next, sequence}), follows) << layer;
      if (!follows || !spec.HasAttention(next) || spec.o_bias) continue;
      EXPECT_EQ((previews[{next, sequence}]), (inputs[{next, sequence}])) << layer;
    }
  }
  EXPECT_EQ(static_cast<size_t>(provider_.previewed), layers);
  EXPECT_GE(static_cast<size_t>(queue_.fences), 2 * layers + spec.MoeLayers().size() + 1);
}

// A chunk that fails leaves the batch in the middle of the step.
TEST_P(QueueTest, AFailedChunkLeavesTheOthersTheirBits) {
  PackedModel queued(store_, queued_), direct(store_);
  const std::vector<std::vector<TokenId>> prompts = {Tokens(3, 2), Tokens(90, 1), Tokens(201, 1)};
  std::map<ExpertKey, std::vector<bool>> choosers;  // by sequence
  provider_.on_begin = [&](const LayerRouting& routing) {
    for (const TokenRouting& token : routing.tokens) {
      for (const ExpertChoice& choice : token.choices) {
        std::vector<bool>& by = choosers[{routing.layer, choice.expert}];
        by.resize(prompts.size());
        by[token.sequence.value()] = true;
      }
    }
  };
  const auto step = [&](PackedModel& model, std::vector<absl::StatusCode>& codes) {
    std::vector<TestSequence> sequences(prompts.size());
    std::vector<SequenceChunk> chunks;
    for (size_t i = 0; i < prompts.size(); ++i) {
      chunks.push_back({.sequence = SequenceId(i), .tokens = prompts[i], .kv = &sequences[i].kv});
    }
    const std::vector<Logits> logits = model.Step(provider_, chunks);
    for (size_t i = 0; i < prompts.size(); ++i) {
      codes.push_back(chunks[i].status.code());
      model.kv().Release(sequences[i].kv);
    }
    return logits;
  };
  std::vector<absl::StatusCode> codes;
  step(direct, codes);
  provider_.on_begin = nullptr;
  const auto some = std::ranges::find_if(choosers, [](const auto& entry) {
    return std::ranges::find(entry.second, false) != entry.second.end() && entry.second.back() == false;
  });
  ASSERT_NE(some, choosers.end());
  for (const std::optional<ExpertPart> part : {std::optional<ExpertPart>(), std::optional(ExpertPart::kDown)}) {
    provider_.FailWith(ExpertFault{some->first, part});
    std::vector<absl::StatusCode> expected_codes, got_codes;
    const std::vector<Logits> expected = step(direct, expected_codes);
    const std::vector<Logits> got = step(queued, got_codes);
    EXPECT_EQ(got_codes, expected_codes);
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(got[i].empty(), some->second[i]);
      EXPECT_TRUE(SameBits(got[i], expected[i])) << "sequence " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, QueueTest, testing::ValuesIn(CheckpointNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
