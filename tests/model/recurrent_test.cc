// Layers with a state: it cannot be cut back, so a sequence that goes on from an earlier position is computed again, or goes on
// at a state that was kept there, with the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/model/long_sequences.h"

namespace moed {
namespace {

constexpr int kPositions = 120;

std::vector<std::string> CheckpointsWithStates() {
  return CheckpointsWhere([](const ModelSpec& spec) { return !spec.recurrent.empty(); });
}

class RecurrentTest : public testing::TestWithParam<std::string> {
 protected:
  std::vector<TokenId> Tokens(uint64_t seed) const { return RandomTokens(kPositions, seed, spec_.vocabulary); }
  Logits Expected(const std::vector<TokenId>& tokens) {
    PackedModel model(store_);
    TestSequence sequence;
    return model.Feed(provider_, sequence, tokens, 50);
  }

  const StoreReader& store_ = PackedStore(GetParam(), FormatId::kQ8);
  const ModelSpec spec_ = *SpecFromJson(store_.description().model_spec);
  MemoryProvider provider_{store_};
  const std::vector<TokenId> tokens_ = Tokens(1);
  const Logits expected_ = Expected(tokens_);
};

TEST_P(RecurrentTest, StatesLieInSlotsAndKeysAndValuesOfTheOthersInPages) {
  ModelSpec attending = spec_;
  const auto states_of = std::count(spec_.recurrent.begin(), spec_.recurrent.end(), true);
  attending.layers = 0;
  for (int layer = 0; layer < spec_.layers; ++layer) attending.layers += spec_.HasAttention(LayerId(layer));
  attending.recurrent.clear();
  attending.mixers.clear();
  EXPECT_EQ(KvPool::PageBytes(spec_), KvPool::PageBytes(attending));
  const uint64_t states = states_of * spec_.recurrence().StateFloats() * sizeof(float);
  EXPECT_GE(KvPool::SlotBytes(spec_, kPositions), states);
  EXPECT_LT(KvPool::SlotBytes(spec_, kPositions), states + 64 * spec_.layers);
}

// The rows of a failed chunk went through the states of the layers before.
TEST_P(RecurrentTest, AFailedChunkLosesTheState) {
  PackedModel model(store_);
  TestSequence sequence;
  const std::span<const TokenId> tokens(tokens_);
  std::optional<ExpertKey> chosen;  // in the last layer, by the last token
  provider_.on_begin = [&](const LayerRouting& routing) {
    chosen = {routing.layer, routing.tokens.back().choices.front().expert};
  };
  model.Feed(provider_, sequence, tokens.first(61), 61);
  model.kv().Release(sequence.kv);
  provider_.on_begin = nullptr;

  model.Feed(provider_, sequence, tokens.first(60), 60);
  SequenceChunk chunk{.tokens = tokens.subspan(60, 1), .kv = &sequence.kv};
  provider_.FailWith(ExpertFault{*chosen, std::nullopt});
  EXPECT_TRUE(model.Step(provider_, std::span(&chunk, 1))[0].empty());
  provider_.FailWith(std::nullopt);
  ASSERT_EQ(chunk.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(model.kv().Lost(sequence.kv));
  model.kv().Release(sequence.kv);
  EXPECT_TRUE(SameBits(model.Feed(provider_, sequence, tokens, 33), expected_));
}

// Sequences that end, are cut back and begin anew in slots that others left.
TEST_P(RecurrentTest, SequencesThatComeAndGoDoNotMix) {
  const std::vector<std::vector<TokenId>> prompts = {tokens_, Tokens(2), Tokens(3)};
  const std::vector<Logits> expected = {expected_, Expected(prompts[1]), Expected(prompts[2])};
  PackedModel model(store_, {.kv_slots = 3});
  int released = 0;
  const auto restart = [&](KvSequence& kv, std::mt19937_64& random) {
    if (kv.length < kPositions && (kv.length == 0 || random() % 10 != 0)) return;
    model.kv().CutBack(kv, kv.length - 1, kv.length);
    EXPECT_LT(kv.slot, 0);
    model.kv().Release(kv);
    ++released;
  };
  ExpectSequencesDoNotMix(model, provider_, prompts, expected,
                          {.steps = 80, .long_piece = 30, .short_piece = 6, .restart = restart});
  EXPECT_GT(released, 3);
}

// Two sequences that part from a third one, the first with a copy of its pages and state, the second with its own.
TEST_P(RecurrentTest, SequencesGoOnAtAKeptStateWithTheSameBits) {
  constexpr size_t kShared = 70;
  std::vector<TokenId> other = Tokens(2);
  std::copy_n(tokens_.begin(), kShared, other.begin());
  const Logits expected_other = Expected(other);
  PackedModel model(store_, {.kv_slots = 3});
  KvPool& kv = model.kv();
  TestSequence first, second{SequenceId(2), {}};
  model.Feed(provider_, first, std::span(tokens_).first(kShared), 33);
  for (size_t page = 0; page < first.kv.pages.size(); ++page) kv.Label(first.kv.pages[page], page + 1);
  const int32_t saved = kv.SaveState(first.kv, 7);
  ASSERT_GE(saved, 0);
  const std::vector<int32_t> pages = first.kv.pages;
  kv.Unlabel(pages.back());  // it is written to
  const Logits rest = model.Feed(provider_, first, std::span(tokens_).subspan(kShared), 33);
  EXPECT_TRUE(SameBits(rest, Part(expected_, kShared, kPositions)));
  kv.Label(pages.back(), 9);

  const bool full = kShared % static_cast<size_t>(kv.page_tokens()) == 0;
  kv.Share(second.kv, 0, std::span(pages).first(pages.size() - (full ? 0 : 1)));
  if (!full) {
    ASSERT_TRUE(kv.AdoptCopy(second.kv, pages.back(), static_cast<int>(kShared) - second.kv.length));
  }
  kv.TakeState(second.kv, saved, 0, /*last=*/false);
  const Logits parted = model.Feed(provider_, second, std::span(other).subspan(kShared), 20);
  EXPECT_TRUE(SameBits(parted, Part(expected_other, kShared, kPositions)));
  EXPECT_EQ(kv.StateLabelOf(saved), 7u) << "it is there for others";
  for (TestSequence* sequence : {&first, &second}) kv.Release(sequence->kv);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, RecurrentTest, testing::ValuesIn(CheckpointsWithStates()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
