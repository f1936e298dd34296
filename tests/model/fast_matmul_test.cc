// Products of halves: prompts of sequences that allow them are near the exact logits, all others have the bits of "scalar".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/model/scratch.h"
#include "tests/kernels/emulated_backend.h"
#include "tests/model/long_sequences.h"
#include "tests/model/packed_model.h"

namespace moed {
namespace {

constexpr int kPrompt = kLeastHalfRows + 3;

// Of one sequence: its prompt in one step, then two tokens one by one.
struct Answered {
  Logits logits;
  std::vector<bool> fast;                         // by step
  std::vector<std::vector<ExpertChoice>> chosen;  // [token]: of all layers
};

// With a sequence beside it, where that has a fidelity; in its steps are as many tokens.
Answered Ask(const StoreReader& store, ComputeBackend* backend, Fidelity fidelity,
             std::optional<Fidelity> beside = std::nullopt) {
  PackedModel model(store, {.page_tokens = 16, .fast_matmul = backend != nullptr, .use_backend = backend});
  MemoryProvider provider(store, backend != nullptr ? backend->memory().shared() : Allocator::Host());
  const std::vector<TokenId> tokens = RandomTokens(kPrompt + 2, 1, model.spec().vocabulary);
  TestSequence asked{SequenceId(1), {}}, other{SequenceId(2), {}};
  Answered answer;
  answer.chosen.resize(tokens.size());
  size_t first = 0;
  provider.on_begin = [&](const LayerRouting& routing) {
    size_t token = first;
    for (const TokenRouting& row : routing.tokens) {
      if (row.sequence != asked.id) continue;
      std::vector<ExpertChoice>& chosen = answer.chosen[token++];
      chosen.insert(chosen.end(), row.choices.begin(), row.choices.end());
    }
  };
  for (const size_t count : {size_t{kPrompt}, size_t{1}, size_t{1}}) {
    const auto piece = std::span(tokens).subspan(first, count);
    std::vector<SequenceChunk> chunks = {
        {.sequence = asked.id, .phase = Phase::kPrefill, .tokens = piece, .kv = &asked.kv, .fidelity = fidelity}};
    if (beside) {
      chunks.push_back({.sequence = other.id, .phase = Phase::kPrefill, .tokens = piece, .kv = &other.kv, .fidelity = *beside});
    }
    const Logits logits = model.Step(provider, chunks)[0];
    for (const SequenceChunk& chunk : chunks) EXPECT_EQ(chunk.status, absl::OkStatus());
    answer.logits.insert(answer.logits.end(), logits.begin(), logits.end());
    answer.fast.push_back(chunks[0].fast_matmul);
    first += count;
  }
  return answer;
}

bool ChosenAlike(const std::vector<ExpertChoice>& a, const std::vector<ExpertChoice>& b) {
  return std::ranges::equal(a, b, [](const ExpertChoice& x, const ExpertChoice& y) {
    return x.expert == y.expert && std::abs(x.probability - y.probability) < 0.03f;
  });
}

// Up to the first token for which a router chooses or, where it has thresholds (phimoe), weighs otherwise: that is another
// function.
void ExpectNear(const Answered& found, const Answered& exact) {
  ASSERT_EQ(found.logits.size(), exact.logits.size());
  double sum = 0, squares = 0, apart = 0, count = 0;
  size_t token = 0;
  for (; token < exact.logits.size() && ChosenAlike(found.chosen[token], exact.chosen[token]); ++token) {
    for (size_t i = 0; i < exact.logits[token].size(); ++i) {
      const double logit = exact.logits[token][i], difference = found.logits[token][i] - logit;
      sum += logit, squares += logit * logit, apart += difference * difference, ++count;
    }
  }
  const double deviation = std::sqrt(squares / count - sum / count * (sum / count));
  EXPECT_LE(std::sqrt(apart / count), 2e-3 * deviation);
  EXPECT_GT(apart, 0);
}

class FastMatmulTest : public testing::TestWithParam<std::string> {};

TEST_P(FastMatmulTest, PromptsAreNearTheExactLogits) {
  const StoreReader& store = PackedStore(GetParam(), FormatId::kBF16);
  EmulatedBackend emulated({.seed = 7, .watch = false, .attributes = emulation::kDiscreteDevice});
  ASSERT_EQ(emulated.backend->OpenFastMatmul(), absl::OkStatus());
  const Answered fast = Ask(store, emulated.backend.get(), Fidelity::FastMatmul());
  EXPECT_THAT(fast.fast, testing::ElementsAre(true, false, false)) << "few tokens are multiplied exactly";
  EXPECT_GT(emulated.device->launches().matmuls, 0u);
  ExpectNear(fast, Ask(store, nullptr, Fidelity::FastMatmul()));
}

TEST(FastMatmul, ExactSequencesAndThoseBesideThemHaveTheBitsOfScalar) {
  const StoreReader& store = PackedStore("qwen3_moe", FormatId::kQ4);
  const Answered exact = Ask(store, nullptr, Fidelity::FastMatmul());
  EXPECT_THAT(exact.fast, testing::Each(false)) << "no backend that has it";
  for (const DeviceAttributes& device : {emulation::kUnifiedDevice, emulation::kDiscreteDevice}) {
    EmulatedBackend emulated({.attributes = device});
    ASSERT_EQ(emulated.backend->OpenFastMatmul(), absl::OkStatus());
    for (const auto beside : {std::optional(Fidelity::Exact()), std::optional(Fidelity::Fast()), std::optional<Fidelity>()}) {
      const bool fast = beside && !beside->exact();
      const Answered answer = Ask(store, emulated.backend.get(), beside ? Fidelity::FastMatmul() : Fidelity::Exact(), beside);
      EXPECT_EQ(answer.fast[0], fast);
      EXPECT_EQ(SameBits(answer.logits, exact.logits), !fast);
    }
  }
}

// Its blocks have more rows than a ring has beside the window.
TEST(FastMatmul, ALongPromptKeepsWhatItsWindowSees) {
  const StoreReader& store = PackedStore("mellum", FormatId::kQ4);
  const auto ask = [&](ComputeBackend* backend) {
    PackedModel model(
        store, {.max_step_tokens = kHalfBlockRows, .page_tokens = 16, .fast_matmul = backend != nullptr, .use_backend = backend});
    MemoryProvider provider(store, backend != nullptr ? backend->memory().shared() : Allocator::Host());
    const std::vector<TokenId> tokens = RandomTokens(model.spec().max_positions, 1, model.spec().vocabulary);
    TestSequence asked{SequenceId(1), {}};
    std::vector<SequenceChunk> chunks = {
        {.sequence = asked.id, .phase = Phase::kPrefill, .tokens = tokens, .kv = &asked.kv, .fidelity = Fidelity::Exact()}};
    return model.Step(provider, chunks)[0];
  };
  EmulatedBackend emulated({.attributes = emulation::kDiscreteDevice});
  ASSERT_EQ(emulated.backend->OpenFastMatmul(), absl::OkStatus());
  EXPECT_TRUE(SameBits(ask(emulated.backend.get()), ask(nullptr)));
}

TEST(FastMatmul, LooserRequestsShareItsSteps) {
  EXPECT_LT(Fidelity::Exact(), Fidelity::FastMatmul());
  EXPECT_LT(Fidelity::FastMatmul(), Fidelity::Bounded(1e-9f));
  EXPECT_EQ(Fidelity::FastMatmul().OfExperts(), Fidelity::Exact());
  for (const Fidelity loose : {Fidelity::FastMatmul(), Fidelity::Bounded(0.5f), Fidelity::Fast()}) {
    EXPECT_TRUE(loose.fast_matmul());
  }
  EXPECT_FALSE(Fidelity::Bounded(0).fast_matmul());
}

TEST(FastMatmul, WithoutItsLibraryItIsRefusedByName) {
  EmulatedBackend without({.matmul = false});
  EXPECT_EQ(without.backend->OpenFastMatmul(), FailedPrecondition("the emulated device has no library for products of matrices"));
  InlineExecutor executor;
  const auto processor = MakeComputeBackend("scalar", executor).value();
  EXPECT_EQ(processor->OpenFastMatmul(),
            FailedPrecondition("the compute backend 'scalar' has exact products alone; 'cuda' has others"));
}

// What is carved for it is in the plan.
TEST(FastMatmul, ItsScratchIsPlanned) {
  const ModelSpec spec = *SpecFromJson(PackedStore("qwen3_moe", FormatId::kQ8).description().model_spec);
  ModelOptions options = {.max_step_tokens = 96, .max_context = 128, .logits_rows = 1};
  const ScratchSizes without = SeparateScratchBytes(spec, options, 1);
  options.fast_matmul = true;
  const ScratchSizes with = SeparateScratchBytes(spec, options, 1);
  EXPECT_GE(with.working, without.working + ComputeBackend::HalfProductBytes(96, spec.hidden, spec.hidden));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, FastMatmulTest, testing::ValuesIn(CheckpointNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
