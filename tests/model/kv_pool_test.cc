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

// A row as `format` keeps it.
std::vector<float> Kept(KvFormat format, const float* numbers, int head_dim) {
  std::vector<std::byte> row(KvRowBytes(format, head_dim));
  std::vector<float> kept(head_dim);
  StoreKvRow(format, numbers, head_dim, row.data());
  WidenKvRow(format, row.data(), head_dim, kept.data());
  return kept;
}

// Every position of every page and layer gets values of its own, which are all there in the end.
TEST(KvPoolTest, PagesLayersKeysAndValuesDoNotOverlap) {
  const ModelSpec spec = SmallSpec();
  const int width = spec.kv_heads * spec.head_dim;
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kQ8}) {
    auto pool = *KvPool::Create(spec, 4, format);
    KvSequence sequence;
    ASSERT_TRUE(pool->Reserve(sequence, 4 * kKvPageTokens));
    const auto row = [&](int position, int layer, int kind) {
      std::vector<float> values(width);
      for (int i = 0; i < width; ++i) {
        values[i] = static_cast<float>((position * spec.layers + layer) * 2 + kind) + static_cast<float>(i % 4) / 4;
      }
      return values;
    };
    const int positions = 4 * kKvPageTokens;
    for (int position = 0; position < positions; ++position) {
      for (int layer = 0; layer < spec.layers; ++layer) {
        pool->Store(sequence, position, LayerId(layer), row(position, layer, 0).data(), row(position, layer, 1).data());
      }
    }
    for (int position = 0; position < positions; ++position) {
      for (int layer = 0; layer < spec.layers; ++layer) {
        const int32_t page = sequence.pages[position / kKvPageTokens];
        for (int kind = 0; kind < 2; ++kind) {
          const void* area = kind == 0 ? pool->Keys(page, LayerId(layer)) : pool->Values(page, LayerId(layer));
          const std::vector<float> expected = row(position, layer, kind);
          for (int head = 0; head < spec.kv_heads; ++head) {
            const int64_t at = (head * kKvPageTokens + position % kKvPageTokens) * KvRowBytes(format, spec.head_dim);
            std::vector<float> found(spec.head_dim);
            WidenKvRow(format, static_cast<const std::byte*>(area) + at, spec.head_dim, found.data());
            ASSERT_EQ(found, Kept(format, &expected[head * spec.head_dim], spec.head_dim));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace moed
