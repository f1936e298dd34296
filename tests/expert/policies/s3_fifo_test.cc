#include "core/expert/policies/s3_fifo.h"

#include <algorithm>
#include <deque>
#include <map>

#include "tests/expert/policy_rig.h"

namespace moed {
namespace s3_fifo_test {

const LayerId kOneLayer[] = {LayerId(0)};
CachedKey Key(int expert) { return {LayerId(0), expert}; }
UnitCache MakeCache(size_t capacity) { return {MakeS3FifoPolicy({kOneLayer, 64, 2, 1}), capacity}; }

// Ten records: one in the small queue, nine in the main one.
TEST(S3FifoPolicy, UsedTwiceIsPromotedUsedOnceLeaves) {
  UnitCache cache = MakeCache(10);
  for (int expert = 0; expert < 10; ++expert) cache.Use(Key(expert));  // all small, 0 the oldest
  cache.Use(Key(0));
  cache.Use(Key(0));  // two uses: to the main queue
  cache.Use(Key(1));  // one: leaves
  cache.Use(Key(20));
  EXPECT_TRUE(cache.Has(Key(0)));
  EXPECT_FALSE(cache.Has(Key(1)));
  for (int expert = 21; expert < 40; ++expert) cache.Use(Key(expert));  // passers-by
  EXPECT_TRUE(cache.Has(Key(0)));
  EXPECT_EQ(cache.residents().size(), 10u);
}

TEST(S3FifoPolicy, AGhostReturnsToTheMainQueue) {
  UnitCache cache = MakeCache(10);
  for (int expert = 0; expert < 11; ++expert) cache.Use(Key(expert));
  EXPECT_FALSE(cache.Has(Key(0)));
  cache.Use(Key(0));
  for (int expert = 20; expert < 40; ++expert) cache.Use(Key(expert));
  EXPECT_TRUE(cache.Has(Key(0)));
}

TEST(S3FifoPolicy, AGuessThatNobodyUsedLeavesNoGhost) {
  for (const bool used : {false, true}) {
    UnitCache cache = MakeCache(10);
    cache.Prefetch(Key(0));
    if (used) cache.Use(Key(0));  // as the insertion of a demanded one
    for (int expert = 1; expert < 11; ++expert) cache.Use(Key(expert));
    EXPECT_FALSE(cache.Has(Key(0)));
    cache.Use(Key(0));
    for (int expert = 20; expert < 40; ++expert) cache.Use(Key(expert));
    EXPECT_EQ(cache.Has(Key(0)), used);
  }
}

TEST(S3FifoPolicy, MainGoesRoundUntilNobodyHasUsesLeft) {
  UnitCache cache = MakeCache(4);
  for (int expert = 0; expert < 4; ++expert) {
    for (int i = 0; i < 4; ++i) cache.Use(Key(expert));  // three more uses than the insertion: the most that count
  }
  cache.Use(Key(10));  // all are promoted, the main queue is one too long: the oldest leaves
  EXPECT_EQ(cache.residents(), (std::set{Key(1), Key(2), Key(3), Key(10)}));
  auto& policy = cache.policy();
  const Incoming incoming{Key(11), 1, LoadReason::kDemand, LayerId(0)};
  EXPECT_EQ(policy.Victim(incoming, [](CachedKey key) { return key.expert == 3; }), Key(3));
  EXPECT_EQ(policy.Victim(incoming, [](CachedKey) { return false; }), std::nullopt);
}

// Algorithm 1 with lists of numbers; one leaves at a time.
class PlainS3Fifo {
 public:
  explicit PlainS3Fifo(size_t capacity) : capacity_(capacity), small_target_(std::max<size_t>(capacity / 10, 1)) {}
  void Use(int x) {
    if (Holds(small_, x) || Holds(main_, x)) {
      uses_[x] = std::min(uses_[x] + 1, 3);
      return;
    }
    const bool ghost = std::erase(ghost_, x) > 0;
    if (small_.size() + main_.size() == capacity_) small_.size() >= small_target_ ? EvictSmall() : EvictMain();
    (ghost ? main_ : small_).push_front(x);
    uses_[x] = 0;
    while (ghost_.size() > capacity_ - small_target_) ghost_.pop_back();
  }
  std::set<CachedKey> Residents() const {
    std::set<CachedKey> residents;
    for (const std::deque<int>* queue : {&small_, &main_}) {
      for (const int x : *queue) residents.insert(Key(x));
    }
    return residents;
  }

 private:
  static bool Holds(const std::deque<int>& queue, int x) { return std::ranges::find(queue, x) != queue.end(); }
  static int PopBack(std::deque<int>& queue) {
    const int x = queue.back();
    queue.pop_back();
    return x;
  }
  void EvictSmall() {
    while (!small_.empty()) {
      const int x = PopBack(small_);
      if (uses_[x] <= 1) return ghost_.push_front(x);
      main_.push_front(x);
      uses_[x] = 0;
      if (main_.size() > capacity_ - small_target_) return EvictMain();
    }
    EvictMain();
  }
  void EvictMain() {
    for (;;) {
      const int x = PopBack(main_);
      if (uses_[x] == 0) return;
      --uses_[x];
      main_.push_front(x);
    }
  }

  const size_t capacity_, small_target_;
  std::deque<int> small_, main_, ghost_;
  std::map<int, int> uses_;
};

TEST(S3FifoPolicy, AgreesWithThePlainOne) {
  for (const size_t capacity : {2, 10, 25, 40}) {
    SCOPED_TRACE(capacity);
    UnitCache cache = MakeCache(capacity);
    PlainS3Fifo plain(capacity);
    ExpectSameResidents(cache, plain, &Key, static_cast<unsigned>(capacity));
  }
}

}  // namespace s3_fifo_test
}  // namespace moed
