#include "core/expert/policies/arc.h"

#include <algorithm>
#include <deque>

#include "core/expert/policies/arc_lists.h"
#include "tests/expert/policy_rig.h"

namespace moed {
namespace arc_test {

const LayerId kOneLayer[] = {LayerId(0)};
CachedKey Key(int expert) { return {LayerId(0), expert}; }
UnitCache MakeCache(size_t capacity, int experts = 64) { return {MakeArcPolicy({kOneLayer, experts, 2, 1}), capacity}; }

TEST(ArcPolicy, AdaptsAsThePaperDoes) {
  UnitCache cache = MakeCache(2);
  enum { a, b, c };
  EXPECT_FALSE(cache.Use(Key(a)));
  EXPECT_TRUE(cache.Use(Key(a)));   // T2: a
  EXPECT_FALSE(cache.Use(Key(b)));  // T1: b
  EXPECT_FALSE(cache.Use(Key(c)));  // p = 0: b leaves T1 for B1
  EXPECT_EQ(cache.residents(), (std::set{Key(a), Key(c)}));
  EXPECT_FALSE(cache.Use(Key(b)));  // B1 hit: p = 1, |T1| = p: a leaves T2 for B2
  EXPECT_EQ(cache.residents(), (std::set{Key(b), Key(c)}));
  EXPECT_FALSE(cache.Use(Key(a)));  // B2 hit: p = 0: c leaves T1
  EXPECT_EQ(cache.residents(), (std::set{Key(a), Key(b)}));
}

TEST(ArcPolicy, AScanLeavesTheFrequentAlone) {
  UnitCache cache = MakeCache(6);
  for (int round = 0; round < 3; ++round) {
    for (int expert = 0; expert < 3; ++expert) cache.Use(Key(expert));
  }
  for (int expert = 10; expert < 60; ++expert) cache.Use(Key(expert));
  for (int expert = 0; expert < 3; ++expert) EXPECT_TRUE(cache.Has(Key(expert)));
}

void Use(ArcLists& lists, size_t key) {
  lists.OnAccess(key);
  lists.OnInsert(key);
}

size_t VictimOf(const ArcLists& lists) {
  return lists.Victim(KeyLists::kNone, [](size_t) { return true; });
}

TEST(ArcPolicy, AGuessIsNoUse) {
  UnitCache cache = MakeCache(3);
  cache.Use(Key(0));
  cache.Use(Key(0));  // T2
  cache.Use(Key(1));  // T1
  cache.Prefetch(Key(2));
  cache.Use(Key(2));  // its first: stays in T1
  cache.Use(Key(1));  // T2
  cache.Use(Key(3));
  EXPECT_EQ(cache.residents(), (std::set{Key(0), Key(1), Key(3)}));

  ArcLists lists(8, 2);
  lists.OnInsert(5);
  lists.OnEvict(5);  // unused: nothing to remember
  lists.OnAccess(5);
  for (const size_t key : {6, 7}) Use(lists, key);
  lists.OnAccess(7);  // T2
  EXPECT_EQ(VictimOf(lists), 6u) << "nothing taught it to keep one in T1";
}

TEST(ArcPolicy, ManyUsesOfOneGhostTeachOnce) {
  ArcLists lists(8, 2);
  lists.OnAccess(1);
  lists.OnInsert(1);
  lists.OnEvict(1);
  for (int sequence = 0; sequence < 3; ++sequence) lists.OnAccess(1);
  lists.OnInsert(1);  // T2
  Use(lists, 2);
  EXPECT_EQ(VictimOf(lists), 1u) << "T1 is to hold one";
  Use(lists, 3);
  EXPECT_EQ(VictimOf(lists), 2u) << "and no more";
}

// Figure 4 of the paper, page by page.
class PlainArc {
 public:
  explicit PlainArc(size_t c) : c_(c) {}
  void Use(int x) {
    if (Take(t1_, x) || Take(t2_, x)) {
      t2_.push_front(x);
    } else if (Holds(b1_, x)) {
      p_ = std::min<double>(c_, p_ + std::max(Ratio(b2_, b1_), 1.0));
      Replace(x);
      Take(b1_, x);
      t2_.push_front(x);
    } else if (Holds(b2_, x)) {
      p_ = std::max(0.0, p_ - std::max(Ratio(b1_, b2_), 1.0));
      Replace(x);
      Take(b2_, x);
      t2_.push_front(x);
    } else {
      if (t1_.size() + b1_.size() == c_) {
        if (t1_.size() < c_) {
          b1_.pop_back();
          Replace(x);
        } else {
          t1_.pop_back();
        }
      } else if (const size_t all = t1_.size() + t2_.size() + b1_.size() + b2_.size(); all >= c_) {
        if (all == 2 * c_) b2_.pop_back();
        Replace(x);
      }
      t1_.push_front(x);
    }
  }
  std::set<CachedKey> Residents() const {
    std::set<CachedKey> residents;
    for (const std::deque<int>* list : {&t1_, &t2_}) {
      for (const int x : *list) residents.insert(Key(x));
    }
    return residents;
  }

 private:
  using List = std::deque<int>;
  static bool Holds(const List& list, int x) { return std::ranges::find(list, x) != list.end(); }
  static bool Take(List& list, int x) { return std::erase(list, x) > 0; }
  static double Ratio(const List& above, const List& below) { return static_cast<double>(above.size()) / below.size(); }
  void Replace(int x) {
    const bool recent = !t1_.empty() && (t1_.size() > p_ || (Holds(b2_, x) && t1_.size() == p_));
    List& from = recent ? t1_ : t2_;
    List& to = recent ? b1_ : b2_;
    to.push_front(from.back());
    from.pop_back();
  }

  const size_t c_;
  double p_ = 0;
  List t1_, t2_, b1_, b2_;
};

TEST(ArcPolicy, AgreesWithThePaperPageByPage) {
  for (const size_t capacity : {1, 2, 5, 16, 40}) {
    SCOPED_TRACE(capacity);
    UnitCache cache = MakeCache(capacity);
    PlainArc plain(capacity);
    ExpectSameResidents(cache, plain, &Key, static_cast<unsigned>(capacity));
  }
}

}  // namespace arc_test
}  // namespace moed
