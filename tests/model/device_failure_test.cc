// A device that fails in the middle of a step: every sequence of the step has its error, none has wrong logits, and the next step
// finds all as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/emulated_backend.h"
#include "tests/model/long_sequences.h"
#include "tests/model/packed_model.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DeviceFailureTest : public testing::TestWithParam<std::string> {
 protected:
  // A step of two sequences that have `tokens_` but for the last two: what became of each.
  struct Outcome {
    std::vector<absl::Status> statuses;
    std::vector<Logits> logits;
  };
  Outcome Step() {
    Outcome outcome;
    SequenceChunk chunks[] = {{.sequence = SequenceId(0), .tokens = std::span(tokens_).last(2), .kv = &first_.kv},
                              {.sequence = SequenceId(1), .tokens = std::span(tokens_).last(1), .kv = &second_.kv}};
    outcome.logits = model_.Step(provider_, chunks);
    for (const SequenceChunk& chunk : chunks) {
      outcome.statuses.push_back(chunk.status);
      // A state that went further than the sequence is of no use: it begins anew.
      if (model_.kv().Lost(*chunk.kv)) model_.kv().Release(*chunk.kv);
    }
    return outcome;
  }
  void Begin() {
    for (TestSequence* sequence : {&first_, &second_}) {
      model_.kv().Release(sequence->kv);
      model_.Feed(provider_, *sequence, std::span(tokens_).first(kBegun), kBegun);
    }
  }
  // Whatever a failed step left.
  void ExpectTheSameBits(const Outcome& expected) {
    if (first_.kv.length == 0 || second_.kv.length == 0) Begin();
    EXPECT_EQ(first_.kv.length, kBegun);
    EXPECT_EQ(second_.kv.length, kBegun);
    const Outcome found = Step();
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(found.statuses[i], absl::OkStatus());
      EXPECT_TRUE(SameBits(found.logits[i], expected.logits[i]));
    }
  }

  static constexpr int kBegun = 5;
  const StoreReader& store_ = PackedStore(GetParam(), FormatId::kQ4);
  EmulatedBackend emulated_{{.watch = false, .attributes = emulation::kUnifiedDevice}};
  PackedModel model_{store_, {.page_tokens = 16, .use_backend = emulated_.backend.get()}};
  MemoryProvider provider_{store_};
  const std::vector<TokenId> tokens_ = RandomTokens(kBegun + 2, 1, model_.spec().vocabulary);
  TestSequence first_, second_;
};

// Each launch of a step in turn, of most checkpoints every eleventh.
TEST_P(DeviceFailureTest, AFaultEndsEverySequenceOfTheStep) {
  Begin();
  const Outcome expected = Step();
  int launch = 0;
  const int stride = GetParam() == "qwen2_moe" ? 1 : 11;
  for (bool failed = true; failed; launch += failed ? stride : 0) {
    SCOPED_TRACE(launch);
    Begin();
    emulated_.device->FailLaunch(launch);
    const Outcome outcome = Step();
    failed = !outcome.statuses[0].ok();
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(outcome.statuses[i].ok(), !failed);
      if (!failed) continue;
      EXPECT_EQ(outcome.statuses[i].code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(outcome.statuses[i].message()),
                  AllOf(HasSubstr("the compute backend 'cuda-emulated' failed"), HasSubstr("injected")));
      EXPECT_TRUE(outcome.logits[i].empty());
    }
    emulated_.device->FailLaunch(-1);
    EXPECT_EQ(emulated_.device->TakeFaults().empty(), !failed);
    if (failed) ExpectTheSameBits(expected);
  }
  EXPECT_GT(launch, 20 * model_.spec().layers / 2);
}

// An error that stays is every later step's.
TEST_P(DeviceFailureTest, ALostDeviceEndsEveryStep) {
  Begin();
  const Outcome expected = Step();
  Begin();
  emulated_.device->FailLaunch(7);
  for (int step = 0; step < 3; ++step) {
    for (const absl::Status& status : Step().statuses) EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  }
  emulated_.device->TakeFaults();
  ExpectTheSameBits(expected);
}

TEST_P(DeviceFailureTest, NoMemoryForWhatDescribesTheWork) {
  emulated_.device->RefuseMemory(true);
  const std::vector<TokenId> tokens = {TokenId(1), TokenId(2)};
  SequenceChunk chunk = {.tokens = tokens, .kv = &first_.kv, .first_logits = 2};
  model_.Step(provider_, std::span(&chunk, 1));
  EXPECT_EQ(chunk.status.code(), absl::StatusCode::kResourceExhausted) << chunk.status;
  EXPECT_EQ(first_.kv.length, 0);
  emulated_.device->RefuseMemory(false);
  model_.Step(provider_, std::span(&chunk, 1));
  EXPECT_EQ(chunk.status, absl::OkStatus());
  EXPECT_EQ(first_.kv.length, 2);
}

// A gate that a predictor asks for has no answer: the step ends with the error, whoever asked.
TEST_P(DeviceFailureTest, ALookAheadGate) {
  Begin();
  const Outcome expected = Step();
  Begin();
  const LayerId layer = model_.spec().MoeLayers().back();
  std::vector<float> probabilities(model_.spec().experts, 1.0f);
  provider_.on_gate_input = [&](SequenceId, LayerId, std::span<const float> hidden) {
    emulated_.device->FailLaunch(0);
    model_.model().GateProbabilities(layer, hidden, probabilities);
    emulated_.device->TakeFaults();
  };
  for (const absl::Status& status : Step().statuses) EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(probabilities, ::testing::Each(0.0f));
  provider_.on_gate_input = nullptr;
  ExpectTheSameBits(expected);
}

// Of attention, windows, latents and states.
INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceFailureTest,
                         testing::Values("qwen2_moe", "gpt_oss", "deepseek_v3", "qwen3_next", "nemotron_h"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
