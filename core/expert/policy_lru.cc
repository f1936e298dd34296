#include "core/expert/policy_lru.h"

#include <vector>

#include "core/base/check.h"
#include "core/expert/expert_index.h"

namespace moed {
namespace {

// A ring through arrays: links of key i at [i], the ring's head behind the last key. head.next is the most recently used.
class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(const PolicyContext& context)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions), head_(index_.size()), links_(head_ + 1) {
    links_[head_] = {head_, head_};
    for (size_t i = 0; i < head_; ++i) links_[i] = {kOut, kOut};
  }

  void OnAccess(CachedKey key, const AccessContext&) override {
    const size_t i = index_.Of(key);
    if (links_[i].next == kOut) return;
    Unlink(i);
    LinkFirst(i);
  }
  void OnInsert(CachedKey key, uint64_t) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(links_[i].next == kOut);
    LinkFirst(i);
  }
  void OnEvict(CachedKey key) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(links_[i].next != kOut);
    Unlink(i);
    links_[i] = {kOut, kOut};
  }
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)> evictable) override {
    for (size_t i = links_[head_].previous; i != head_; i = links_[i].previous) {
      const CachedKey key = index_.KeyAt(i);
      if (evictable(key)) return key;
    }
    return std::nullopt;
  }

 private:
  struct Link {
    size_t previous;
    size_t next;
  };
  static constexpr size_t kOut = ~size_t{0};

  void Unlink(size_t i) {
    links_[links_[i].previous].next = links_[i].next;
    links_[links_[i].next].previous = links_[i].previous;
  }
  void LinkFirst(size_t i) {
    const size_t second = links_[head_].next;
    links_[i] = {head_, second};
    links_[head_].next = i;
    links_[second].previous = i;
  }

  const ExpertIndex index_;
  const size_t head_;
  std::vector<Link> links_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLruPolicy(const PolicyContext& context) { return std::make_unique<LruPolicy>(context); }

}  // namespace moed
