// Layers with windows keep what their windows see: the bits are those of a pool that keeps all positions of all layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/model/long_sequences.h"

namespace moed {
namespace {

constexpr int kPageTokens = 16;
constexpr int kPositions = 600;

std::vector<std::string> CheckpointsWithWindows() {
  return CheckpointsWhere([](const ModelSpec& spec) { return !spec.windows.empty(); });
}

class WindowTest : public testing::TestWithParam<std::string> {
 protected:
  static ModelSetup Setup(bool keep_all = false) {
    return {.max_step_tokens = 200,
            .kv_pages = 3 * kPositions / kPageTokens + 3,
            .kv_slots = 3,
            .page_tokens = kPageTokens,
            .windows_keep_all = keep_all,
            .max_positions = kPositions};
  }
  std::vector<TokenId> Tokens(uint64_t seed) const { return RandomTokens(kPositions, seed, spec_.vocabulary); }
  Logits Expected(const std::vector<TokenId>& tokens) {
    PackedModel model(store_, Setup(true));
    TestSequence sequence;
    return model.Feed(provider_, sequence, tokens, 50);
  }
  int Ring() const {
    const ModelSpec one = [&] {
      ModelSpec spec = spec_;
      spec.layers = 1;
      spec.windows = {*std::max_element(spec_.windows.begin(), spec_.windows.end())};
      return spec;
    }();
    ModelSpec whole = one;
    whole.windows.clear();
    return static_cast<int>(KvPool::SlotBytes(one, kPositions, KvFormat::kF32, kPageTokens) /
                            KvPool::PageBytes(whole, KvFormat::kF32, kPageTokens)) *
           kPageTokens;
  }

  const StoreReader& store_ = PackedStore(GetParam(), FormatId::kQ8);
  const ModelSpec spec_ = *SpecFromJson(store_.description().model_spec);
  MemoryProvider provider_{store_};
  const std::vector<TokenId> tokens_ = Tokens(1);
  const Logits expected_ = Expected(tokens_);
};

TEST_P(WindowTest, AContextOfManyRingsHasTheSameBits) {
  ASSERT_GT(kPositions, 4 * Ring());
  for (const ComputeBackendRow& backend : ComputeBackends()) {
    if (!backend.supported()) continue;
    for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kQ8}) {
      ModelSetup setup = Setup(true);
      setup.backend = backend.name;
      setup.kv_format = format;
      PackedModel whole(store_, setup);
      TestSequence all;
      const Logits expected = format == KvFormat::kF32 ? expected_ : whole.Feed(provider_, all, tokens_, 64);
      for (const size_t chunk_tokens : {7, 64, 200}) {
        setup.windows_keep_all = false;
        if (format != KvFormat::kF32 && chunk_tokens != 7) continue;
        setup.threads = chunk_tokens == 64 ? 2 : 1;
        PackedModel model(store_, setup);
        TestSequence sequence;
        EXPECT_TRUE(SameBits(model.Feed(provider_, sequence, tokens_, chunk_tokens), expected))
            << backend.name << ", " << kKvFormatNames[static_cast<int>(format)] << ", chunks of " << chunk_tokens;
      }
    }
  }
}

// Three sequences in steps of random pieces; slots and pages change hands.
TEST_P(WindowTest, SequencesThatComeAndGoDoNotMix) {
  const std::vector<std::vector<TokenId>> prompts = {tokens_, Tokens(2), Tokens(3)};
  const std::vector<Logits> expected = {expected_, Expected(prompts[1]), Expected(prompts[2])};
  PackedModel model(store_, Setup());
  int released = 0;
  const auto restart = [&](KvSequence& kv, std::mt19937_64& random) {
    if (kv.length < kPositions && random() % 40 != 0) return;
    model.kv().Release(kv);
    ++released;
  };
  ExpectSequencesDoNotMix(model, provider_, prompts, expected,
                          {.steps = 120, .long_piece = 60, .short_piece = 12, .restart = restart});
  EXPECT_GT(released, 3);
}

// A chunk that failed is computed again, from where the sequence was or from the beginning.
TEST_P(WindowTest, AFailedChunkIsComputedAgain) {
  for (const int failing : {1, 40, 150}) {
    PackedModel model(store_, Setup());
    TestSequence sequence;
    const std::span<const TokenId> tokens(tokens_);
    model.Feed(provider_, sequence, tokens.first(300), 60);
    std::optional<ExpertKey> chosen;  // in the last layer, by the last token
    provider_.on_begin = [&](const LayerRouting& routing) {
      chosen = {routing.layer, routing.tokens.back().choices.front().expert};
    };
    SequenceChunk chunk{.tokens = tokens.subspan(300, static_cast<size_t>(failing)), .kv = &sequence.kv};
    TestSequence scout;
    model.Feed(provider_, scout, tokens.first(300 + static_cast<size_t>(failing)), 60);
    model.kv().Release(scout.kv);
    provider_.on_begin = nullptr;

    provider_.FailWith(ExpertFault{*chosen, std::nullopt});
    EXPECT_TRUE(model.Step(provider_, std::span(&chunk, 1))[0].empty());
    provider_.FailWith(std::nullopt);
    ASSERT_EQ(chunk.status.code(), absl::StatusCode::kDataLoss);
    if (model.kv().Lost(sequence.kv)) model.kv().Release(sequence.kv);
    const int length = sequence.kv.length;
    EXPECT_EQ(length, failing == 150 ? 0 : 300) << "a block's rows more than the windows see are kept";
    const Logits again = model.Feed(provider_, sequence, tokens.subspan(static_cast<size_t>(length)), 60);
    EXPECT_TRUE(SameBits(again, Part(expected_, length, kPositions))) << failing;
  }
}

TEST_P(WindowTest, WhatIsCutBackGoesOnWithTheSameBits) {
  PackedModel model(store_, Setup());
  TestSequence sequence;
  std::mt19937_64 random(6);
  int kept = 0, released = 0;
  for (int round = 0; round < 40; ++round) {
    const int begin = sequence.kv.length;
    const int end = std::min(kPositions, begin + 1 + static_cast<int>(random() % 150));
    const Logits got = model.Feed(provider_, sequence, std::span(tokens_).subspan(begin, end - begin), 1 + random() % 70);
    ASSERT_TRUE(SameBits(got, Part(expected_, begin, end))) << begin << " to " << end;
    const int cut = end - static_cast<int>(random() % std::min(end, random() % 2 == 0 ? 20 : 200));
    model.kv().CutBack(sequence.kv, cut, end);
    const bool lost = model.kv().Lost(sequence.kv);
    if (lost) model.kv().Release(sequence.kv);
    ++(lost ? released : kept);
  }
  EXPECT_GT(kept, 5);
  EXPECT_GT(released, 3);
}

TEST_P(WindowTest, APoolForLessThanTheContextIsRefused) {
  InlineExecutor executor;
  const auto backend = *MakeComputeBackend("scalar", executor);
  const auto kv = *KvPool::Create(spec_, {.pages = 4, .max_context = 31});
  EXPECT_TRUE(Model::Load({store_, spec_, *backend, *kv}, {8, 31, 1}).ok());
  const absl::Status refused = Model::Load({store_, spec_, *backend, *kv}, {8, 32, 1}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("31"), absl::string_view::npos) << refused;
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, WindowTest, testing::ValuesIn(CheckpointsWithWindows()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
