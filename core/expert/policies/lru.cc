#include "core/expert/policies/lru.h"

#include "core/base/check.h"
#include "core/expert/expert_index.h"
#include "core/expert/policies/key_lists.h"

namespace moed {
namespace {

// One list: who was put first last leaves last.
template <bool kUsePutsFirst>
class ListPolicy final : public EvictionPolicy {
 public:
  explicit ListPolicy(const ExpertModelShape& context)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions), residents_(index_.size(), 1) {}

  void OnAccess(CachedKey key, const AccessContext&) override {
    const size_t i = index_.Of(key);
    if (kUsePutsFirst && residents_.Listed(i)) residents_.PutFirst(0, i);
  }
  void OnInsert(CachedKey key, uint64_t) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(!residents_.Listed(i));
    residents_.PutFirst(0, i);
  }
  void OnEvict(CachedKey key) override { residents_.Remove(index_.Of(key)); }
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)> evictable) override {
    return index_.KeyIfAny(residents_.LastOf(0, [&](size_t i) { return evictable(index_.KeyAt(i)); }));
  }

 private:
  const ExpertIndex index_;
  KeyLists residents_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLruPolicy(const ExpertModelShape& context) {
  return std::make_unique<ListPolicy</*kUsePutsFirst=*/true>>(context);
}
std::unique_ptr<EvictionPolicy> MakeFifoPolicy(const ExpertModelShape& context) {
  return std::make_unique<ListPolicy</*kUsePutsFirst=*/false>>(context);
}

}  // namespace moed
