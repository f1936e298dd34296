#include "core/expert/policies/arc.h"

#include "core/expert/expert_index.h"
#include "core/expert/policies/arc_lists.h"

namespace moed {
namespace {

class ArcPolicy final : public EvictionPolicy {
 public:
  explicit ArcPolicy(const ExpertModelShape& context)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions), lists_(index_.size(), 0) {}

  void OnAccess(CachedKey key, const AccessContext&) override { lists_.OnAccess(index_.Of(key)); }
  void OnInsert(CachedKey key, uint64_t) override { lists_.OnInsert(index_.Of(key)); }
  void OnEvict(CachedKey key) override { lists_.OnEvict(index_.Of(key)); }
  std::optional<CachedKey> Victim(const Incoming& incoming, absl::FunctionRef<bool(CachedKey)> evictable) override {
    return index_.KeyIfAny(lists_.Victim(index_.Of(incoming.key), [&](size_t i) { return evictable(index_.KeyAt(i)); }));
  }

 private:
  const ExpertIndex index_;
  ArcLists lists_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeArcPolicy(const ExpertModelShape& context) { return std::make_unique<ArcPolicy>(context); }

}  // namespace moed
