// A cache of equal records around a policy, as the real one asks it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/expert/policies/table.h"

namespace moed {

inline const auto kAnyKey = [](CachedKey) { return true; };

class UnitCache {
 public:
  UnitCache(std::unique_ptr<EvictionPolicy> policy, size_t capacity, uint64_t record_bytes = 1)
      : policy_(std::move(policy)), capacity_(capacity), record_bytes_(record_bytes) {}

  EvictionPolicy& policy() { return *policy_; }
  const std::set<CachedKey>& residents() const { return residents_; }
  bool Has(const CachedKey& key) const { return residents_.contains(key); }

  // One use by one sequence; true for a hit.
  bool Use(const CachedKey& key, SequenceId sequence = SequenceId(1)) {
    const bool hit = Has(key);
    policy_->OnAccess(key, {.sequence = sequence, .hit = hit});
    if (!hit) Load(key, LoadReason::kDemand);
    return hit;
  }
  void Prefetch(const CachedKey& key) { Load(key, LoadReason::kPrefetch); }

 private:
  void Load(const CachedKey& key, LoadReason reason) {
    if (residents_.size() == capacity_) {
      const auto victim = policy_->Victim({key, record_bytes_, reason, key.layer}, kAnyKey);
      MOED_CHECK(victim && residents_.erase(*victim) == 1);
      policy_->OnEvict(*victim);
    }
    residents_.insert(key);
    policy_->OnInsert(key, record_bytes_);
  }

  const std::unique_ptr<EvictionPolicy> policy_;
  const size_t capacity_;
  const uint64_t record_bytes_;
  std::set<CachedKey> residents_;
};

// Favourites, scans and a working set that moves, over 64 experts: `cache` and `plain` hold the same ones after every use.
template <class Plain>
void ExpectSameResidents(UnitCache& cache, Plain& plain, CachedKey (*key)(int), unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < 6000; ++i) {
    const int kind = static_cast<int>(random() % 3);
    const int x = kind == 0   ? static_cast<int>(random() % 8)
                  : kind == 1 ? i % 64
                              : static_cast<int>((i / 500 * 9 + random() % 20) % 64);
    cache.Use(key(x));
    plain.Use(x);
    ASSERT_EQ(cache.residents(), plain.Residents()) << "use " << i;
  }
}

}  // namespace moed
