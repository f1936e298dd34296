#include "core/expert/policies/random.h"

#include <random>
#include <vector>

#include "core/base/check.h"
#include "core/expert/expert_index.h"

namespace moed {
namespace {

constexpr uint64_t kSeed = 1;

class RandomPolicy final : public EvictionPolicy {
 public:
  explicit RandomPolicy(const ExpertModelShape& context)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions), place_(index_.size(), kOut), random_(kSeed) {
    residents_.reserve(index_.size());
  }

  void OnAccess(CachedKey, const AccessContext&) override {}
  void OnInsert(CachedKey key, uint64_t) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(place_[i] == kOut);
    place_[i] = residents_.size();
    residents_.push_back(i);
  }
  void OnEvict(CachedKey key) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(place_[i] != kOut);
    Swap(place_[i], residents_.size() - 1);
    residents_.pop_back();
    place_[i] = kOut;
  }
  // Draws without putting back: what was drawn and may not leave is swapped behind those that are still to be drawn.
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)> evictable) override {
    for (size_t left = residents_.size(); left > 0; --left) {
      const size_t drawn = random_() % left;
      const CachedKey key = index_.KeyAt(residents_[drawn]);
      if (evictable(key)) return key;
      Swap(drawn, left - 1);
    }
    return std::nullopt;
  }

 private:
  static constexpr size_t kOut = ~size_t{0};

  void Swap(size_t a, size_t b) {
    std::swap(residents_[a], residents_[b]);
    place_[residents_[a]] = a;
    place_[residents_[b]] = b;
  }

  const ExpertIndex index_;
  std::vector<size_t> residents_;
  std::vector<size_t> place_;  // in residents_, kOut when absent
  std::mt19937_64 random_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeRandomPolicy(const ExpertModelShape& context) {
  return std::make_unique<RandomPolicy>(context);
}

}  // namespace moed
