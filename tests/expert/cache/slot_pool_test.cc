#include "core/expert/cache/slot_pool.h"

#include <sys/mman.h>

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace moed {
namespace slot_pool_test {

constexpr uint64_t kPage = kPageBytes;
using Extent = std::span<std::byte>;

class CountingAllocator final : public Allocator {
 public:
  absl::StatusOr<Buffer> Allocate(size_t bytes) override {
    allocated += bytes;
    return Buffer::Allocate(bytes);
  }
  size_t allocated = 0;
};

class SlotPoolTest : public testing::Test {
 protected:
  CountingAllocator allocator_;
  SlotPool pool_{allocator_, 4 * kPage + 100, 4 * kPage + 100};
};

TEST_F(SlotPoolTest, TakesTheRegionOnce) {
  EXPECT_EQ(allocator_.allocated, 0u);
  const Extent first = pool_.Take(2 * kPage, 0).value();
  pool_.Return(first);
  const Extent again = pool_.Take(2 * kPage, 0).value();
  EXPECT_EQ(again.data(), first.data());
  EXPECT_EQ(allocator_.allocated, 4 * kPage);
  EXPECT_EQ(pool_.touched_bytes(), 2 * kPage);
  pool_.Return(again);
}

TEST_F(SlotPoolTest, HolesGrowTogetherInEveryOrder) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    std::vector<Extent> pages;
    for (int i = 0; i < 4; ++i) pages.push_back(pool_.Take(kPage, 0).value());
    EXPECT_TRUE(pool_.Take(kPage, 0).value().empty());
    for (const int page : order) pool_.Return(pages[page]);
    const Extent whole = pool_.Take(4 * kPage, 0).value();
    EXPECT_EQ(whole.size(), 4 * kPage);
    pool_.Return(whole);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(SlotPoolTest, AHoleTooSmallIsNoRoom) {
  const Extent first = pool_.Take(kPage, 0).value();
  const Extent second = pool_.Take(kPage, 0).value();
  pool_.Return(first);
  EXPECT_TRUE(pool_.Take(3 * kPage, 0).value().empty());  // three pages free, in two holes
  pool_.Return(second);
  const Extent large = pool_.Take(3 * kPage, 0).value();
  EXPECT_EQ(large.size(), 3 * kPage);
  pool_.Return(large);
}

TEST_F(SlotPoolTest, KeepsFreeWhatItIsTold) {
  EXPECT_TRUE(pool_.Take(2 * kPage, 3 * kPage).value().empty());
  EXPECT_EQ(pool_.Take(2 * kPage, 2 * kPage).value().size(), 2 * kPage);
}

TEST_F(SlotPoolTest, WhatIsLentIsNotHandedOut) {
  const Extent first = pool_.Take(kPage, 0).value();
  const Extent second = pool_.Take(2 * kPage, 0).value();
  pool_.Lend(2 * kPage);
  EXPECT_EQ(pool_.available_bytes(), 2 * kPage + 100);
  EXPECT_EQ(pool_.Lent()->size(), 2 * kPage);
  EXPECT_FALSE(pool_.ReachesLent(first));
  EXPECT_TRUE(pool_.ReachesLent(second));  // with its second page
  EXPECT_TRUE(pool_.Take(kPage, 0).value().empty());
  pool_.Return(second);
  EXPECT_EQ(pool_.Take(kPage, 0)->data(), second.data());
  EXPECT_TRUE(pool_.Take(kPage, 0).value().empty());
  pool_.Lend(0);
  EXPECT_EQ(pool_.Take(2 * kPage, 0)->size(), 2 * kPage);
}

size_t PagesInMemory(Extent extent) {
  std::vector<unsigned char> pages(extent.size() / kPage);
  EXPECT_EQ(mincore(extent.data(), extent.size(), pages.data()), 0);
  return static_cast<size_t>(std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; }));
}

TEST_F(SlotPoolTest, WhatIsBeyondTheCapacityLeavesTheProcessAndComesBack) {
  constexpr uint64_t kSmall = 16 * kPage, kLarge = 64 * kPage;
  SlotPool pool(allocator_, kSmall, kLarge);
  EXPECT_TRUE(pool.Take(kSmall + kPage, 0).value().empty());
  pool.Resize(kLarge);
  const Extent whole = pool.Take(kLarge, 0).value();
  ASSERT_EQ(whole.size(), kLarge);
  std::ranges::fill(whole, std::byte{1});
  EXPECT_EQ(PagesInMemory(whole), 64u);
  EXPECT_TRUE(pool.gives_back());
  pool.Resize(kSmall);
  EXPECT_TRUE(pool.ReachesBeyond(whole));
  pool.Return(whole);
  pool.GiveBackBeyond();
  EXPECT_EQ(PagesInMemory(whole), 16u);
  EXPECT_EQ(pool.touched_bytes(), kSmall);
  EXPECT_EQ(pool.free_bytes(), kSmall);
  const Extent small = pool.Take(kSmall, 0).value();
  EXPECT_FALSE(pool.ReachesBeyond(small));
  EXPECT_TRUE(pool.Take(kPage, 0).value().empty());
  pool.Return(small);
  pool.Resize(kLarge);
  EXPECT_EQ(pool.Take(kLarge, 0)->data(), whole.data());
  EXPECT_EQ(whole.front(), std::byte{1});
  EXPECT_EQ(whole.back(), std::byte{0});
}

TEST_F(SlotPoolTest, RandomSizesNeverOverlap) {
  std::mt19937_64 random(3);
  SlotPool pool(allocator_, 64 * kPage, 64 * kPage);
  std::vector<std::pair<Extent, std::byte>> taken;
  for (int i = 0; i < 5000; ++i) {
    if (!taken.empty() && random() % 2 == 0) {
      std::swap(taken[random() % taken.size()], taken.back());
      const auto [extent, mark] = taken.back();
      EXPECT_EQ(extent.front(), mark);
      EXPECT_EQ(extent.back(), mark);
      pool.Return(extent);
      taken.pop_back();
      continue;
    }
    const Extent extent = pool.Take((1 + random() % 3) * kPage, 0).value();
    if (extent.empty()) continue;
    const std::byte mark{static_cast<unsigned char>(i)};
    std::fill(extent.begin(), extent.end(), mark);
    taken.push_back({extent, mark});
  }
  EXPECT_LE(pool.touched_bytes(), pool.capacity_bytes());
}

}  // namespace slot_pool_test
}  // namespace moed
