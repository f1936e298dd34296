#include "core/expert/slot_pool.h"

#include <random>

#include "gtest/gtest.h"

namespace moed {
namespace {

constexpr uint64_t kPage = kPageBytes;

// Checks at every allocation that the pool has made room before it maps more.
class StrictAllocator final : public Allocator {
 public:
  absl::StatusOr<Buffer> Allocate(size_t bytes) override {
    ++allocations;
    EXPECT_LE(pool->mapped_bytes() + bytes, pool->capacity_bytes());
    return Buffer::Allocate(bytes);
  }
  const SlotPool* pool = nullptr;
  int allocations = 0;
};

class SlotPoolTest : public testing::Test {
 protected:
  SlotPoolTest() { allocator_.pool = &pool_; }
  StrictAllocator allocator_;
  SlotPool pool_{allocator_, 4 * kPage};
};

TEST_F(SlotPoolTest, ReusesWhatHasTheSameSize) {
  Buffer first = pool_.Take(2 * kPage, 0).value();
  const std::byte* where = first.data();
  pool_.Return(std::move(first));
  EXPECT_EQ(pool_.mapped_bytes(), 2 * kPage);
  const Buffer again = pool_.Take(2 * kPage, 0).value();
  EXPECT_EQ(again.data(), where);
  EXPECT_EQ(allocator_.allocations, 1);
}

TEST_F(SlotPoolTest, UnmapsOtherSizesForRoom) {
  Buffer small = pool_.Take(kPage, 0).value();
  Buffer other = pool_.Take(kPage, 0).value();
  pool_.Return(std::move(small));
  EXPECT_EQ(pool_.Take(4 * kPage, 0).value().size(), 0u);  // `other` is in use
  EXPECT_EQ(pool_.mapped_bytes(), 2 * kPage);
  pool_.Return(std::move(other));
  const Buffer large = pool_.Take(4 * kPage, 0).value();
  EXPECT_EQ(large.size(), 4 * kPage);
  EXPECT_EQ(pool_.mapped_bytes(), 4 * kPage);
}

TEST_F(SlotPoolTest, KeepsFreeWhatItIsTold) {
  EXPECT_EQ(pool_.Take(2 * kPage, 3 * kPage).value().size(), 0u);
  EXPECT_EQ(pool_.Take(2 * kPage, 2 * kPage).value().size(), 2 * kPage);
}

TEST_F(SlotPoolTest, RandomSizesNeverExceedTheCapacity) {
  std::mt19937_64 random(3);
  std::vector<Buffer> taken;
  uint64_t in_use = 0;
  for (int i = 0; i < 2000; ++i) {
    if (!taken.empty() && random() % 2 == 0) {
      std::swap(taken[random() % taken.size()], taken.back());
      in_use -= taken.back().size();
      pool_.Return(std::move(taken.back()));
      taken.pop_back();
      continue;
    }
    const uint64_t bytes = (1 + random() % 3) * kPage;
    Buffer buffer = pool_.Take(bytes, 0).value();
    EXPECT_EQ(buffer.size() > 0, in_use + bytes <= pool_.capacity_bytes());
    if (buffer.size() == 0) continue;
    in_use += bytes;
    taken.push_back(std::move(buffer));
  }
}

}  // namespace
}  // namespace moed
