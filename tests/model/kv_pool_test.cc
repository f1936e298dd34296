#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/model/kv_pool_specs.h"

namespace moed {
namespace {

TEST(KvPoolTest, PageBytesCountKeysAndValuesOfAllLayers) {
  EXPECT_EQ(KvPool::PageBytes(SmallSpec()), 3u * 2 * kKvPageTokens * 2 * 6 * sizeof(float));
  EXPECT_EQ(KvPool::PageBytes(SmallSpec(), KvFormat::kF16), 3u * 2 * kKvPageTokens * 2 * 6 * sizeof(uint16_t));
  EXPECT_EQ(KvPool::PageBytes(SmallSpec(), KvFormat::kQ8), 3u * 2 * kKvPageTokens * 2 * (6 + sizeof(uint16_t)));
}

TEST(KvPoolTest, LatentAttentionKeepsOneRowForAllHeads) {
  ModelSpec spec = SmallSpec();
  spec.heads = 5, spec.kv_heads = 1, spec.head_dim = 20, spec.rotary_dims = 6;
  spec.latent = {.kv_rank = 40, .value_dim = 16};
  EXPECT_EQ(KvPool::PageBytes(spec), 3u * kKvPageTokens * (40 + 6) * sizeof(float));
  EXPECT_EQ(KvPool::PageBytes(spec, KvFormat::kF16), 3u * kKvPageTokens * (40 + 6) * sizeof(uint16_t));
  EXPECT_EQ(KvPool::PageBytes(spec, KvFormat::kQ8), 3u * kKvPageTokens * (40 + 6 + 3 * sizeof(uint16_t)));
}

TEST(KvPoolTest, RefusesNoPagesAndMoreThanMemory) {
  EXPECT_EQ(KvPool::Create(SmallSpec(), {.pages = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  ModelSpec huge = SmallSpec();
  huge.layers = 4096, huge.kv_heads = 1024, huge.head_dim = 1024;
  EXPECT_EQ(KvPool::Create(huge, {.pages = INT32_MAX}).status().code(), absl::StatusCode::kResourceExhausted);
}

// Random growth and release of several sequences, against a set of pages each.
TEST(KvPoolTest, BehavesLikeItsNaiveTwin) {
  constexpr int kPages = 13;
  auto pool = *KvPool::Create(SmallSpec(), {.pages = kPages});
  std::mt19937_64 random(3);
  std::vector<KvSequence> sequences(5);
  std::vector<size_t> twin(5);  // pages each should own
  int refused = 0;
  for (int step = 0; step < 5000; ++step) {
    const size_t at = random() % sequences.size();
    if (random() % 4 == 0) {
      pool->Release(sequences[at]);
      twin[at] = 0;
      EXPECT_EQ(sequences[at].length, 0);
    } else {
      const int positions = static_cast<int>(random() % (6 * kKvPageTokens));
      const size_t wanted = std::max<size_t>(twin[at], (positions + kKvPageTokens - 1) / kKvPageTokens);
      size_t used = wanted - twin[at];
      for (const size_t pages : twin) used += pages;
      const std::vector<int32_t> before = sequences[at].pages;
      const bool fits = used <= kPages;
      EXPECT_EQ(pool->Reserve(sequences[at], positions), fits);
      refused += !fits;
      if (fits) twin[at] = wanted;
      EXPECT_TRUE(std::equal(before.begin(), before.end(), sequences[at].pages.begin())) << "pages that hold positions moved";
    }
    std::set<int32_t> owned;
    size_t total = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      EXPECT_EQ(sequences[i].pages.size(), twin[i]);
      total += twin[i];
      owned.insert(sequences[i].pages.begin(), sequences[i].pages.end());
    }
    EXPECT_EQ(owned.size(), total) << "a page has two owners";
    EXPECT_TRUE(owned.empty() || (*owned.begin() >= 0 && *owned.rbegin() < kPages));
    EXPECT_EQ(pool->free_pages(), kPages - static_cast<int>(total));
  }
  EXPECT_GT(refused, 100);
}

// Every byte of every page and layer is there once.
TEST(KvPoolTest, PagesAndLayersDoNotOverlap) {
  const ModelSpec spec = SmallSpec();
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kQ8}) {
    constexpr int kPages = 4;
    auto pool = *KvPool::Create(spec, {.pages = kPages, .format = format});
    const size_t layer_bytes = KvPool::PageBytes(spec, format) / spec.layers;
    const KvSequence all{.pages = {0, 1, 2, 3}};
    const auto mark = [&](int page, int layer) { return static_cast<std::byte>(1 + page * spec.layers + layer); };
    for (int page = 0; page < kPages; ++page) {
      for (int layer = 0; layer < spec.layers; ++layer) {
        std::fill_n(pool->PageOf(all, page, LayerId(layer)), layer_bytes, mark(page, layer));
      }
    }
    for (int page = 0; page < kPages; ++page) {
      for (int layer = 0; layer < spec.layers; ++layer) {
        const std::byte* const area = pool->PageOf(all, page, LayerId(layer));
        EXPECT_EQ(std::count(area, area + layer_bytes, mark(page, layer)), static_cast<std::ptrdiff_t>(layer_bytes));
      }
    }
  }
}

TEST(KvPoolTest, PagesOfFewerPositions) {
  auto pool = *KvPool::Create(SmallSpec(), {.pages = 3, .page_tokens = 16});
  EXPECT_EQ(pool->page_tokens(), 16);
  KvSequence sequence;
  EXPECT_TRUE(pool->Reserve(sequence, 33));
  EXPECT_EQ(sequence.pages.size(), 3u);
  EXPECT_FALSE(pool->Reserve(sequence, 49));
  EXPECT_EQ(4 * KvPool::PageBytes(SmallSpec(), KvFormat::kF32, 16), KvPool::PageBytes(SmallSpec()));
}

constexpr uint64_t LayerBytes(int page_tokens) { return uint64_t{2} * page_tokens * 2 * 6 * sizeof(float); }

TEST(KvPoolTest, PagesAreOfTheLayersThatSeeAllPositionsAndSlotsOfTheOthers) {
  EXPECT_EQ(KvPool::SlotBytes(SmallSpec(), 1000), 0u);
  EXPECT_EQ(KvPool::PageBytes(WindowedSpec(100)), LayerBytes(64));
  // 99 positions before a block's 64 rows lie in 4 pages at most, wherever they begin.
  EXPECT_EQ(KvPool::SlotBytes(WindowedSpec(100), 1000), 2 * 4 * LayerBytes(64));
  EXPECT_EQ(KvPool::SlotBytes(WindowedSpec(101), 1000, KvFormat::kF32, 16), 2 * 12 * LayerBytes(16));
  EXPECT_EQ(KvPool::SlotBytes(WindowedSpec(1), 1000), 2 * 2 * LayerBytes(64));
  EXPECT_EQ(KvPool::SlotBytes(WindowedSpec(1 << 30), 1000), 2 * 16 * LayerBytes(64)) << "no more than the context needs";
  EXPECT_EQ(KvPool::SlotBytes(WindowedSpec(100), 65), 2 * 2 * LayerBytes(64));
  EXPECT_EQ((*KvPool::Create(SmallSpec(), {.pages = 3, .slots = 7}))->slots(), 0);
}

TEST(KvPoolTest, ASequenceTakesPagesAndASlotOrNeither) {
  auto pool = *KvPool::Create(WindowedSpec(20), {.pages = 4, .slots = 2});
  KvSequence first, second, third;
  EXPECT_TRUE(pool->Reserve(first, 10));
  EXPECT_TRUE(pool->Reserve(second, 10));
  EXPECT_FALSE(pool->Reserve(third, 10)) << "no slot is left";
  EXPECT_FALSE(third.holds_memory());
  EXPECT_EQ(pool->free_pages(), 2);
  EXPECT_TRUE(pool->Reserve(first, 3 * kKvPageTokens)) << "it has its slot";
  EXPECT_FALSE(pool->Reserve(second, 2 * kKvPageTokens)) << "no page is left";
  EXPECT_NE(first.slot, second.slot);
  pool->Release(second);
  EXPECT_EQ(second.slot, -1);
  EXPECT_EQ(pool->free_slots(), 1);
  EXPECT_FALSE(pool->Reserve(third, 2 * kKvPageTokens));
  EXPECT_EQ(pool->free_slots(), 1) << "the slot stays where pages lack";
  EXPECT_TRUE(pool->Reserve(third, kKvPageTokens));
  for (KvSequence* sequence : {&first, &third}) pool->Release(*sequence);
  EXPECT_EQ(pool->free_slots(), pool->slots());
  EXPECT_EQ(pool->free_pages(), pool->pages());
  EXPECT_EQ(KvPool::Create(WindowedSpec(20), {.pages = 4, .slots = 0}).status().code(), absl::StatusCode::kInvalidArgument);
}

// Pages of every layer of two sequences: where a window is, page p + ring is page p, and nothing else is anything else.
TEST(KvPoolTest, RingsComeRoundAndNothingElseOverlaps) {
  constexpr int kPages = 12;
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kQ8}) {
    for (const int page_tokens : {16, 64}) {
      const ModelSpec spec = WindowedSpec(20);
      auto pool = *KvPool::Create(spec, {.pages = 2 * kPages, .slots = 2, .format = format, .page_tokens = page_tokens});
      const int ring = page_tokens == 16 ? 7 : 3;
      const size_t bytes = KvPool::PageBytes(spec, format, page_tokens);
      KvSequence sequences[2];
      std::set<std::byte*> begins;
      for (KvSequence& sequence : sequences) {
        ASSERT_TRUE(pool->Reserve(sequence, kPages * page_tokens));
        for (int layer = 0; layer < spec.layers; ++layer) {
          for (int page = 0; page < kPages; ++page) {
            std::byte* const begin = pool->PageOf(sequence, page, LayerId(layer));
            const bool windowed = layer != 1;
            EXPECT_EQ(begins.insert(begin).second, !windowed || page < ring);
            if (windowed && page >= ring) {
              EXPECT_EQ(begin, pool->PageOf(sequence, page - ring, LayerId(layer)));
            }
          }
        }
      }
      EXPECT_EQ(begins.size(), 2u * (kPages + 2 * ring));
      for (auto next = std::next(begins.begin()); next != begins.end(); ++next) {
        EXPECT_GE(*next - *std::prev(next), static_cast<std::ptrdiff_t>(bytes));
      }
      std::fill_n(*begins.rbegin(), bytes, std::byte{1});  // within the pool: a sanitizer would tell
    }
  }
}

// Against a ring that is written down: which page was written last at each of its places.
TEST(KvPoolTest, WhatIsCutBackStaysWhereTheWindowIsStillThere) {
  constexpr int kPageTokens = 16, kPositions = 40 * kPageTokens;
  std::mt19937_64 random(5);
  int kept = 0, released = 0;
  for (const int window : {1, 7, 16, 33, 100, 300}) {
    auto pool = *KvPool::Create(WindowedSpec(window), {.pages = 40, .page_tokens = kPageTokens});
    const size_t ring = KvPool::SlotBytes(WindowedSpec(window), kPositions, KvFormat::kF32, kPageTokens) / 2 / LayerBytes(16);
    KvSequence sequence;
    std::vector<int> twin(ring, -1);
    for (int step = 0; step < 2000; ++step) {
      const int before = sequence.length;
      const int reached = std::min<int>(kPositions, before + 1 + static_cast<int>(random() % (random() % 4 == 0 ? 300 : 30)));
      ASSERT_TRUE(pool->Reserve(sequence, reached));
      for (int position = before; position < reached; ++position) twin[position / kPageTokens % ring] = position / kPageTokens;
      if (random() % 3 != 0 && reached < kPositions) {
        sequence.length = reached;
        continue;
      }
      const bool failed = random() % 2 == 0;  // the chunk; else everything from some position on is taken back
      if (!failed) sequence.length = reached;
      const int length = failed ? before : reached - std::min<int>(reached, static_cast<int>(random() % 200));
      bool intact = true;
      for (int position = std::max(0, length + 1 - window); position < length; ++position) {
        intact &= twin[position / kPageTokens % ring] == position / kPageTokens;
      }
      const bool can = pool->CanCutBack(sequence, length, reached);
      pool->CutBack(sequence, length, reached);
      EXPECT_EQ(sequence.slot >= 0, can);
      if (sequence.slot >= 0) {
        EXPECT_TRUE(intact) << "window " << window << ": " << reached << " back to " << length;
        EXPECT_EQ(sequence.length, length);
        ++kept;
      } else {
        EXPECT_EQ(sequence.length, length);
        EXPECT_EQ(pool->Lost(sequence), length > 0);
        EXPECT_EQ(pool->free_slots(), 1);
        pool->Release(sequence);
        EXPECT_TRUE(!intact || window == 1 || length == 0) << "window " << window << ": " << reached << " back to " << length;
        twin.assign(ring, -1);
        ++released;
      }
    }
    pool->Release(sequence);
  }
  EXPECT_GT(kept, 500);
  EXPECT_GT(released, 500);
}

// Layer 1 has a state, layer 2 a window.
ModelSpec RecurrentSpec() {
  ModelSpec spec = SmallSpec();
  spec.delta_net = DeltaNetShape{.key_heads = 1, .value_heads = 3, .key_dim = 5, .value_dim = 7, .taps = 4};
  spec.recurrent = {false, true, false};
  spec.windows = {0, 0, 9};
  return spec;
}

TEST(KvPoolTest, StatesLieInSlotsAndGoWithWhatIsCutBack) {
  const ModelSpec spec = RecurrentSpec();
  const uint64_t state = RoundUp(spec.StateBytes(LayerId(1)), 64);
  ASSERT_GT(state, 0u);
  EXPECT_EQ(KvPool::PageBytes(spec), LayerBytes(64));
  EXPECT_EQ(KvPool::SlotBytes(spec, 1000), state + 3 * LayerBytes(64));
  auto pool = *KvPool::Create(spec, {.pages = 8, .slots = 2});
  KvSequence first, second;
  ASSERT_TRUE(pool->Reserve(first, 100) && pool->Reserve(second, 100));
  std::byte* const states[] = {pool->State(first, LayerId(1)), pool->State(second, LayerId(1))};
  for (std::byte* const begin : states) EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % 64, 0u);
  EXPECT_EQ(states[1] - states[0], static_cast<std::ptrdiff_t>(KvPool::SlotBytes(spec, 8 * kKvPageTokens)));
  EXPECT_EQ(pool->PageOf(first, 0, LayerId(2)) - states[0], static_cast<std::ptrdiff_t>(state));

  first.length = 50;
  pool->CutBack(first, 50, 50);
  EXPECT_EQ(first.length, 50) << "nothing is cut";
  pool->CutBack(first, 50, 51);
  EXPECT_TRUE(pool->Lost(first)) << "a chunk failed that the state had seen";
  second.length = 50;
  pool->CutBack(second, 49, 50);
  EXPECT_TRUE(pool->Lost(second));
  EXPECT_EQ(second.length, 49);
  EXPECT_EQ(pool->free_slots(), 2);
}

// A sequence of two slots, filled with a byte.
KvSequence WithState(KvPool& pool, std::byte filling) {
  KvSequence sequence;
  EXPECT_TRUE(pool.Reserve(sequence, 50));
  sequence.length = 50;
  *pool.State(sequence, LayerId(1)) = filling;
  return sequence;
}

TEST(KvPoolTest, KeptStatesGoTheOldestFirstAndAfterThoseWithoutALabel) {
  auto pool = *KvPool::Create(RecurrentSpec(), {.pages = 8, .slots = 4});
  KvSequence first = WithState(*pool, std::byte{1});
  const int32_t saved = pool->SaveState(first, 10);
  ASSERT_GE(saved, 0);
  const int32_t left = pool->LeaveState(first, 11);
  EXPECT_EQ(first.slot, -1);
  EXPECT_EQ(pool->free_slots(), 4);
  EXPECT_EQ(pool->remembered_slots(), 2);
  pool->TouchState(saved);
  pool->Release(first);
  KvSequence others[3];
  ASSERT_TRUE(pool->Reserve(others[0], 1) && pool->Reserve(others[1], 1));
  EXPECT_EQ(pool->remembered_slots(), 2) << "two had no label";
  ASSERT_TRUE(pool->Reserve(others[2], 1));
  EXPECT_EQ(pool->StateLabelOf(left), 0u);
  EXPECT_EQ(pool->StateLabelOf(saved), 10u);
  pool->ForgetState(saved);
  EXPECT_EQ(pool->remembered_slots(), 0);
}

TEST(KvPoolTest, AStateIsCopiedOrWhereNoOtherSlotIsFreeTaken) {
  for (const int slots : {2, 3}) {
    auto pool = *KvPool::Create(RecurrentSpec(), {.pages = 8, .slots = slots});
    KvSequence first = WithState(*pool, std::byte{5}), second;
    const int32_t saved = pool->SaveState(first, 10);
    ASSERT_GE(saved, 0);
    *pool->State(first, LayerId(1)) = std::byte{6};
    pool->TakeState(second, saved, 50, /*last=*/false);
    EXPECT_EQ(*pool->State(second, LayerId(1)), std::byte{5});
    EXPECT_EQ(*pool->State(first, LayerId(1)), std::byte{6});
    EXPECT_EQ(pool->StateLabelOf(saved), slots == 3 ? 10u : 0u);
    EXPECT_EQ(pool->free_slots(), slots == 3 ? 1 : 0);
    EXPECT_EQ(slots == 2 ? pool->SaveState(first, 12) : -1, -1) << "no slot is free";
    pool->TakeState(first, pool->LeaveState(second, 11), 50, /*last=*/true);
    EXPECT_EQ(*pool->State(first, LayerId(1)), std::byte{5});
    EXPECT_EQ(pool->free_slots(), slots - 1);
  }
}

TEST(KvPoolTest, WithoutSlotsWhatIsCutBackAlwaysStays) {
  auto pool = *KvPool::Create(SmallSpec(), {.pages = 40});
  KvSequence sequence;
  ASSERT_TRUE(pool->Reserve(sequence, 2000));
  pool->CutBack(sequence, 3, 2000);
  EXPECT_EQ(sequence.length, 3);
  EXPECT_EQ(sequence.pages.size(), 1u);
  EXPECT_EQ(pool->free_pages(), 39);
}

}  // namespace
}  // namespace moed
