#include "core/base/status.h"
#include "tests/replay/trace_files.h"
#include "tests/store/file_size_limit.h"

namespace moed {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kBudget = 1 << 30;

void Route(RoutingRecorder& recorder, const RoutingShape& shape, SequenceId sequence, TokenId token,
           const std::vector<std::vector<ExpertChoice>>& layers, Phase phase = Phase::kDecode) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const TokenRouting tokens[] = {{.sequence = sequence, .token = token, .phase = phase, .choices = layers[i]}};
    recorder.OnRouted({shape.layers[i], tokens});
  }
}

TEST(RoutingRecorder, WhatItWritesIsRead) {
  for (const int experts : {4, 300}) {  // of a byte and of two
    MemoryFolder folder;
    RoutingShape shape = TinyShape();
    shape.experts = experts;
    auto recorder = RoutingRecorder::Create(folder / "trace", shape, kBudget);
    ASSERT_TRUE(recorder.ok()) << recorder.status();
    const SequenceId one(1), two(2);
    const auto last = static_cast<int32_t>(experts - 1);
    Route(**recorder, shape, one, TokenId(5), {{{0, 1.f}, {1, 0.f}}, {{2, .6f}, {last, .4f}}});
    Route(**recorder, shape, two, TokenId(6), {{{1, .5f}, {0, .5f}}, {{3, .5f}, {2, .5f}}});
    Route(**recorder, shape, one, TokenId(9), {{{0, .5f}, {1, .5f}}, {{0, .5f}, {1, .5f}}}, Phase::kPrefill);  // not recorded
    Route(**recorder, shape, one, TokenId(8), {{{0, .5f}}, {{0, .5f}, {1, .5f}}});                             // nor a masked one
    Route(**recorder, shape, one, TokenId(7), {{{2, .5f}, {1, .5f}}, {{1, .5f}, {0, .5f}}});
    (*recorder)->OnSequenceEnd(one);
    ASSERT_TRUE((*recorder)->Finish().ok());

    TokenTexts texts;
    const auto trace = ReadRoutingTrace(folder / "trace", std::nullopt, texts);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_TRUE(trace->shape.SameExperts(shape));
    EXPECT_EQ(trace->shape.expert_bytes, shape.expert_bytes);
    EXPECT_THAT(trace->token_ids, ElementsAre(TokenId(5), TokenId(7), TokenId(6)));
    EXPECT_THAT(trace->experts, ElementsAre(0, 1, 2, last, 2, 1, 1, 0, 1, 0, 3, 2));
    EXPECT_THAT(std::span(trace->probabilities).first(4), ElementsAre(255, 0, 153, 102));
    ASSERT_EQ(trace->sequences.size(), 2u);
    EXPECT_EQ(trace->sequences[0].tokens, 2u);
  }
}

TEST(RoutingRecorder, LongSequencesAreWrittenInPieces) {
  MemoryFolder folder;
  const RoutingShape shape = TinyShape();
  auto recorder = RoutingRecorder::Create(folder / "trace", shape, kBudget);
  ASSERT_TRUE(recorder.ok());
  constexpr int kTokens = 20'000;
  for (int i = 0; i < kTokens; ++i)
    Route(**recorder, shape, SequenceId(1), TokenId(i), {{{0, .5f}, {1, .5f}}, {{2, .5f}, {3, .5f}}});
  ASSERT_TRUE((*recorder)->Finish().ok());
  TokenTexts texts;
  const auto trace = ReadRoutingTrace(folder / "trace", std::nullopt, texts);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->replayed_tokens(), size_t{kTokens});
  EXPECT_EQ(trace->sequences.size(), 2u);
  EXPECT_EQ(trace->token_ids.back(), TokenId(kTokens - 1));
}

// Also where the process ends without a word.
TEST(RoutingRecorder, AnAnswerThatEndedIsThereForItsOwner) {
  MemoryFolder folder;
  const RoutingShape shape = TinyShape();
  auto recorder = RoutingRecorder::Create(folder / "trace", shape, kBudget);
  ASSERT_TRUE(recorder.ok());
  Route(**recorder, shape, SequenceId(1), TokenId(5), {{{0, .5f}, {1, .5f}}, {{2, .5f}, {3, .5f}}});
  Route(**recorder, shape, SequenceId(2), TokenId(6), {{{0, .5f}, {1, .5f}}, {{2, .5f}, {3, .5f}}});
  (*recorder)->OnSequenceEnd(SequenceId(1));
  TokenTexts texts;
  const auto trace = ReadRoutingTrace(folder / "trace", std::nullopt, texts);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->token_ids, ElementsAre(TokenId(5)));
  for (const auto& file : {kTraceExperts8, kTraceProbabilities, kTraceIndex}) {
    EXPECT_EQ(std::filesystem::status(StrCat(folder / "trace", "/", file)).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
}

TEST(RoutingRecorder, WhatADiskHadRoomForIsAWholeTrace) {
  for (const rlim_t limit : {5, 40, 100}) {  // the second of the experts has none, the second line of the index, the third
    SCOPED_TRACE(limit);
    MemoryFolder folder;
    const RoutingShape shape = TinyShape();
    int told = 0;
    auto recorder = RoutingRecorder::Create(folder / "trace", shape, kBudget, [&](const absl::Status& error) {
      EXPECT_TRUE(absl::IsDataLoss(error));
      ++told;
    });
    ASSERT_TRUE(recorder.ok());
    const auto record = [&](int sequence) {
      Route(**recorder, shape, SequenceId(sequence), TokenId(sequence), {{{0, .5f}, {1, .5f}}, {{2, .5f}, {3, .5f}}});
      (*recorder)->OnSequenceEnd(SequenceId(sequence));
    };
    record(1);
    {
      const FileSizeLimit full(limit);
      for (int sequence = 2; sequence < 10; ++sequence) record(sequence);
    }
    EXPECT_EQ(told, 1);
    record(10);
    EXPECT_TRUE(absl::IsDataLoss((*recorder)->Finish()));
    TokenTexts texts;
    const auto trace = ReadRoutingTrace(folder / "trace", std::nullopt, texts);
    ASSERT_TRUE(trace.ok()) << trace.status();
    ASSERT_FALSE(trace->token_ids.empty());
    EXPECT_EQ(trace->token_ids.front(), TokenId(1));
    EXPECT_EQ(trace->token_ids.back(), TokenId(static_cast<int>(trace->token_ids.size()))) << "nothing after a gap";
    EXPECT_EQ(trace->experts.size(), 4 * trace->token_ids.size());
  }
}

TEST(RoutingRecorder, ATraceThatWasRemovedIsMissed) {
  MemoryFolder folder;
  auto recorder = RoutingRecorder::Create(folder / "trace", TinyShape(), kBudget);
  ASSERT_TRUE(recorder.ok());
  std::filesystem::remove_all(folder / "trace");
  const absl::Status finished = (*recorder)->Finish();
  EXPECT_TRUE(absl::IsDataLoss(finished));
  EXPECT_THAT(std::string(finished.message()), HasSubstr("was removed"));
}

TEST(RoutingRecorder, NeverWritesOverATrace) {
  MemoryFolder folder;
  ASSERT_TRUE((*RoutingRecorder::Create(folder / "trace", TinyShape(), kBudget))->Finish().ok());
  const auto again = RoutingRecorder::Create(folder / "trace", TinyShape(), kBudget);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Message(again.status()), HasSubstr(folder / "trace"));
  EXPECT_FALSE(RoutingRecorder::Create("/dev/null/trace", TinyShape(), kBudget).ok());
}

}  // namespace
}  // namespace moed
