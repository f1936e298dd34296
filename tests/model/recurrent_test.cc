// Layers with a state: it cannot be cut back, so a sequence that goes on from an earlier position is computed again, with the
// same bits.
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
TEST_P(RecurrentTest, AFailedChunkIsComputedFromTheBeginning) {
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
  EXPECT_EQ(sequence.kv.length, 0);
  EXPECT_FALSE(sequence.kv.holds_memory());
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
    EXPECT_EQ(kv.length, 0);
    ++released;
  };
  ExpectSequencesDoNotMix(model, provider_, prompts, expected,
                          {.steps = 80, .long_piece = 30, .short_piece = 6, .restart = restart});
  EXPECT_GT(released, 3);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, RecurrentTest, testing::ValuesIn(CheckpointsWithStates()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
