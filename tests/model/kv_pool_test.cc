#include "core/model/kv_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace moed {
namespace {

ModelSpec SmallSpec() {
  ModelSpec spec;
  spec.layers = 3;
  spec.kv_heads = 2;
  spec.head_dim = 6;
  return spec;
}

TEST(KvPoolTest, PageBytesCountKeysAndValuesOfAllLayers) {
  EXPECT_EQ(KvPool::PageBytes(SmallSpec()), 3u * 2 * kKvPageTokens * 2 * 6 * sizeof(float));
  EXPECT_EQ(KvPool::PageBytes(SmallSpec(), KvFormat::kF16), 3u * 2 * kKvPageTokens * 2 * 6 * sizeof(uint16_t));
  EXPECT_EQ(KvPool::PageBytes(SmallSpec(), KvFormat::kQ8), 3u * 2 * kKvPageTokens * 2 * (6 + sizeof(uint16_t)));
}

TEST(KvPoolTest, RefusesNoPagesAndMoreThanMemory) {
  EXPECT_EQ(KvPool::Create(SmallSpec(), 0).status().code(), absl::StatusCode::kInvalidArgument);
  ModelSpec huge = SmallSpec();
  huge.layers = 4096, huge.kv_heads = 1024, huge.head_dim = 1024;
  EXPECT_EQ(KvPool::Create(huge, INT32_MAX).status().code(), absl::StatusCode::kResourceExhausted);
}

// Random growth and release of several sequences, against a set of pages each.
TEST(KvPoolTest, BehavesLikeItsNaiveTwin) {
  constexpr int kPages = 13;
  auto pool = *KvPool::Create(SmallSpec(), kPages);
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
    auto pool = *KvPool::Create(spec, kPages, format);
    const size_t layer_bytes = KvPool::PageBytes(spec, format) / spec.layers;
    const auto mark = [&](int page, int layer) { return static_cast<std::byte>(1 + page * spec.layers + layer); };
    for (int page = 0; page < kPages; ++page) {
      for (int layer = 0; layer < spec.layers; ++layer) {
        std::fill_n(pool->At(page, LayerId(layer)), layer_bytes, mark(page, layer));
      }
    }
    for (int page = 0; page < kPages; ++page) {
      for (int layer = 0; layer < spec.layers; ++layer) {
        const std::byte* const area = pool->At(page, LayerId(layer));
        EXPECT_EQ(std::count(area, area + layer_bytes, mark(page, layer)), static_cast<std::ptrdiff_t>(layer_bytes));
      }
    }
  }
}

TEST(KvPoolTest, PagesOfFewerPositions) {
  auto pool = *KvPool::Create(SmallSpec(), 3, KvFormat::kF32, 16);
  EXPECT_EQ(pool->page_tokens(), 16);
  KvSequence sequence;
  EXPECT_TRUE(pool->Reserve(sequence, 33));
  EXPECT_EQ(sequence.pages.size(), 3u);
  EXPECT_FALSE(pool->Reserve(sequence, 49));
  EXPECT_EQ(4 * KvPool::PageBytes(SmallSpec(), KvFormat::kF32, 16), KvPool::PageBytes(SmallSpec()));
}

}  // namespace
}  // namespace moed
