// Keys and values that were on disk change no bit, whatever the model's layers keep and in which format: every tiny checkpoint,
// sessions in turns in a pool that holds one and a half of them, against an engine that computes each request from its start.
#include "core/engine/kv_spill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "tests/engine/model_serving.h"
#include "tests/engine/spilled_file.h"
#include "tests/store/small_store.h"

namespace moed {
namespace kv_spill_test {

using testing::HasSubstr;

constexpr int kContext = 128, kNewTokens = 3, kPage = 16;
constexpr uint64_t kAmple = 64 << 20;

struct Serving : ModelServing {
  Serving(const std::string& checkpoint, const Tokenizer& tokenizer, const Clock& clock, KvFormat format,
          std::shared_ptr<NamelessFile> file, uint64_t disk = kAmple)
      : ModelServing(checkpoint, tokenizer, clock,
                     {.max_step_tokens = 64,
                      .kv_pages = 8,
                      .kv_slots = file == nullptr ? 4 : 2,
                      .page_tokens = kPage,
                      .max_context = kContext,
                      .kv_format = format},
                     {.max_context = kContext,
                      .max_new_tokens = kContext - 1,
                      .max_running = 2,
                      .max_step_tokens = 64,
                      .max_kept_sessions = 3,
                      .prefix_cache = file != nullptr},
                     file, disk) {}

  std::shared_ptr<ObservedAnswer> Turn(const std::vector<TokenId>& history, const std::string& session) {
    auto answer = ModelServing::Serve(RequestOf(history, session, kNewTokens, ++asked));
    if (spill != nullptr) SaveAll();
    return answer;
  }
  KvSpillStats Stats() const { return engine->Stats().spill; }

  int asked = 0;
};

// Conversations that know what they have said.
class Conversations {
 public:
  Conversations(Serving& serving, Serving& alone) : serving_(serving), alone_(alone) {}

  // Asks on; how many tokens were not computed.
  int Turn(const std::string& name, int more) {
    std::vector<TokenId>& history = histories_[name];
    const auto asked = RandomTokens(more, ++seed_, 200);
    history.insert(history.end(), asked.begin(), asked.end());
    const auto answer = serving_.Turn(history, name);
    const auto expected = alone_.Turn(history, "");
    ExpectSameBits(answer->tokens, expected->tokens, StrCat(name, " after ", history.size(), " tokens"));
    for (const TokenInfo& info : answer->tokens) history.push_back(info.token);
    return answer->cached_tokens;
  }
  int tokens(const std::string& name) { return static_cast<int>(histories_[name].size()); }

 private:
  Serving& serving_;
  Serving& alone_;
  std::map<std::string, std::vector<TokenId>> histories_;
  uint64_t seed_ = 0;
};

class KvSpillFamiliesTest : public testing::TestWithParam<std::string> {
 protected:
  const std::unique_ptr<Tokenizer> tokenizer_ = CheckpointTokenizer(GetParam());
  const FakeClock clock_{};
};

TEST_P(KvSpillFamiliesTest, TurnsHaveTheBitsOfAComputationFromTheStart) {
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kF32, KvFormat::kQ8}) {
    SCOPED_TRACE(kKvFormatNames[static_cast<int>(format)]);
    Serving alone(GetParam(), *tokenizer_, clock_, format, nullptr);
    Serving serving(GetParam(), *tokenizer_, clock_, format, std::make_shared<SpilledFile>());
    Conversations talk(serving, alone);
    for (const char* name : {"a", "b"}) talk.Turn(name, 66);
    for (const char* name : {"a", "b", "a"}) {
      const int before = talk.tokens(name);
      EXPECT_EQ(talk.Turn(name, 8), before - 1) << name << ": all but its last token";
    }
    EXPECT_GE(serving.Stats().restored_tokens, 64u) << "the first pages may be known still";
    EXPECT_EQ(serving.Stats().lost_tokens, 0u);
    EXPECT_EQ(serving.Stats().damaged, 0u);
    EXPECT_TRUE(serving.reports.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, KvSpillFamiliesTest, testing::ValuesIn(CheckpointNames()),
                         [](const auto& info) { return info.param; });

// One with pages alone, one with windows, one with states.
class KvSpillTest : public testing::TestWithParam<std::string> {
 protected:
  const std::unique_ptr<Tokenizer> tokenizer_ = CheckpointTokenizer(GetParam());
  const FakeClock clock_{};
  Serving alone_{GetParam(), *tokenizer_, clock_, KvFormat::kF16, nullptr};
  std::shared_ptr<SpilledFile> file_ = std::make_shared<SpilledFile>();
  Serving serving_{GetParam(), *tokenizer_, clock_, KvFormat::kF16, file_};
  Conversations talk_{serving_, alone_};
};

TEST_P(KvSpillTest, WhatCannotBeReadIsComputedAgain) {
  const std::pair<const char*, std::function<void(SpilledFile&)>> faults[] = {
      {"flipped", [](SpilledFile& file) { file.FlipBits(1, kPageBytes); }},
      {"short", [](SpilledFile& file) { file.CutTo(0); }},
      {"failing", [](SpilledFile& file) { file.FailReads(ErrnoError(EIO, "cannot read")); }}};
  for (const auto& [what, fault] : faults) {
    SCOPED_TRACE(what);
    const auto file = std::make_shared<SpilledFile>();
    Serving serving(GetParam(), *tokenizer_, clock_, KvFormat::kF16, file);
    Conversations talk(serving, alone_);
    talk.Turn("a", 70);
    talk.Turn("b", 70);
    fault(*file);
    talk.Turn("a", 1);
    EXPECT_EQ(serving.Stats().restored_tokens, 0u);
    EXPECT_EQ(serving.Stats().damaged, 1u);
    EXPECT_GT(serving.Stats().lost_tokens, 60u);
    ASSERT_EQ(serving.reports.size(), 1u);
    EXPECT_THAT(std::string(serving.reports.back().message()), HasSubstr("computed again"));
  }
}

TEST_P(KvSpillTest, AFullDiskEndsWritingAndNothingElse) {
  talk_.Turn("a", 90);
  file_->LimitTo(file_->size());
  talk_.Turn("b", 90);
  ASSERT_EQ(serving_.reports.size(), 1u);
  EXPECT_THAT(std::string(serving_.reports.back().message()), HasSubstr("No space left"));
  EXPECT_TRUE(serving_.Stats().ended);
  const int before = talk_.tokens("a");
  EXPECT_EQ(talk_.Turn("a", 1), before - 1) << "what is on disk comes back";
  talk_.Turn("b", 1);
  talk_.Turn("a", 1);
  EXPECT_EQ(serving_.reports.size(), 1u) << "told once";
  EXPECT_GT(serving_.Stats().lost_tokens, 0u);
}

TEST_P(KvSpillTest, ASessionEndsWithWhatItHasOnDisk) {
  talk_.Turn("a", 90);
  talk_.Turn("b", 90);
  const std::vector<SessionInfo> sessions = serving_.engine->ListSessions(9);
  ASSERT_EQ(sessions.size(), 2u);
  EXPECT_EQ(sessions[1].name, "a");
  EXPECT_EQ(sessions[1].on_disk, talk_.tokens("a") - 1);
  for (const char* name : {"a", "b"}) EXPECT_TRUE(serving_.engine->DeleteSession(name).ok());
  serving_.engine->RunOneStep();
  EXPECT_EQ(serving_.Stats().on_disk_bytes, 0u);
}

// Another prompt in its place: what both begin with is used, as far as its layers allow.
TEST_P(KvSpillTest, AChangedConversation) {
  talk_.Turn("a", 90);
  talk_.Turn("b", 90);
  auto prompt = RandomTokens(90, 1, 200);
  prompt.resize(60);
  const auto answer = serving_.Turn(prompt, "a"), expected = alone_.Turn(prompt, "");
  ExpectSameBits(answer->tokens, expected->tokens, "a shorter one");
  talk_.Turn("b", 1);
  const auto again = serving_.Turn(prompt, "a");
  ExpectSameBits(again->tokens, expected->tokens, "again");
}

// Cancelled while its pages come back, and then asked again.
TEST_P(KvSpillTest, ACancelledReturn) {
  talk_.Turn("a", 90);
  talk_.Turn("b", 90);
  auto answer = serving_.Ask(RequestOf(RandomTokens(90, 1, 200), "a", kNewTokens, 1000));
  serving_.engine->RunOneStep();
  serving_.engine->Cancel(serving_.last, absl::CancelledError("no"));
  while (serving_.engine->RunOneStep()) {
  }
  EXPECT_TRUE(absl::IsCancelled(answer->status) || answer->status.ok());
  talk_.Turn("b", 2);
  talk_.Turn("a", 2);
}

// Room for one of them: the one that was idle longer goes.
TEST_P(KvSpillTest, TheBudgetHoldsWhoWasUsedLast) {
  const uint64_t pages = 6, one = pages * RoundUp(serving_.model.kv().page_bytes(), kPageBytes) +
                                  RoundUp(serving_.model.kv().slot_bytes(), kPageBytes) + 4 * kPageBytes;
  FakeClock clock;
  Serving serving(GetParam(), *tokenizer_, clock, KvFormat::kF16, std::make_shared<SpilledFile>(), one);
  Conversations talk(serving, alone_);
  for (const char* name : {"a", "b", "c"}) {
    clock.AdvanceNanos(1000);
    talk.Turn(name, 85);
    EXPECT_LE(serving.Stats().on_disk_bytes, one);
  }
  const std::vector<SessionInfo> sessions = serving.engine->ListSessions(9);
  ASSERT_EQ(sessions.size(), 3u);
  EXPECT_GT(sessions[0].on_disk, 0) << "c";
  EXPECT_EQ(sessions[2].on_disk, 0) << "a";
  EXPECT_GT(serving.Stats().lost_tokens, 0u);
  clock.AdvanceNanos(1000);
  talk.Turn("a", 1);
}

INSTANTIATE_TEST_SUITE_P(Layers, KvSpillTest, testing::Values("olmoe", "gpt_oss", "qwen3_next"),
                         [](const auto& info) { return info.param; });

TEST(SpillPricesTest, WhatIsCheaper) {
  SpillPrices prices;
  EXPECT_TRUE(prices.ReadingPays(1 << 20, 1)) << "nothing is known";
  prices.OnPrefill(1000, 1'000'000'000);
  prices.OnWritten(1 << 20, 1 << 20);  // a byte a nanosecond
  EXPECT_TRUE(prices.ReadingPays(1'000'000, 1));
  EXPECT_FALSE(prices.ReadingPays(1'100'000, 1));
  prices.OnRead(1 << 20, 1 << 24);  // reading is dearer than writing
  EXPECT_FALSE(prices.ReadingPays(1'000'000, 1));
  int tried = 0;
  for (int i = 0; i < 64; ++i) tried += prices.ReadingPays(1 << 30, 1) ? 1 : 0;
  EXPECT_EQ(tried, 4);
}

TEST(NamelessFileTest, HoldsWhatIsWrittenAndLeavesNothing) {
  const MemoryFolder folder;
  auto file = OpenNamelessFile(folder / "");
  if (!file.ok()) {
    EXPECT_THAT(std::string(file.status().message()), HasSubstr("refuses O_DIRECT"));
    return;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
  Buffer page = *Buffer::Allocate(2 * kPageBytes);
  std::fill_n(page.data(), page.size(), std::byte{5});
  EXPECT_TRUE((*file)->WriteAt(3 * kPageBytes, page.span()).ok());
  Buffer back = *Buffer::Allocate(2 * kPageBytes);
  EXPECT_TRUE((*file)->ReadAt(3 * kPageBytes, back.span()).ok());
  EXPECT_TRUE(std::equal(back.data(), back.data() + back.size(), page.data()));
  EXPECT_TRUE(absl::IsDataLoss((*file)->ReadAt(9 * kPageBytes, back.span())));
  EXPECT_TRUE(absl::IsNotFound(OpenNamelessFile(folder / "not there").status()));
}

}  // namespace kv_spill_test
}  // namespace moed
