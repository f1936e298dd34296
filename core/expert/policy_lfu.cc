#include "core/expert/policy_lfu.h"

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/check.h"
#include "core/expert/expert_index.h"

namespace moed {
namespace {

// Every sequence counts its own uses; a key's rank is the sum over live sequences, ties go to the more recently used.
class LfuPolicy final : public EvictionPolicy {
 public:
  explicit LfuPolicy(const PolicyContext& context)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions),
        ranks_(index_.size()),
        position_(index_.size(), kOut) {
    residents_.reserve(index_.size());
  }

  void OnSequenceStart(SessionId session) override {
    const bool is_new = uses_.try_emplace(session, index_.size()).second;
    MOED_CHECK(is_new);
  }
  void OnSequenceEnd(SessionId session) override {
    const auto ended = uses_.find(session);
    MOED_CHECK(ended != uses_.end());
    for (size_t i = 0; i < index_.size(); ++i) ranks_[i].uses -= ended->second[i];
    uses_.erase(ended);
  }
  void OnAccess(CachedKey key, const AccessContext& context) override {
    const size_t i = index_.Of(key);
    const auto sequence = uses_.find(context.session);
    MOED_CHECK(sequence != uses_.end());
    ++sequence->second[i];
    ++ranks_[i].uses;
    ranks_[i].last_use = ++now_;
  }
  void OnInsert(CachedKey key, uint64_t) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(position_[i] == kOut);
    ranks_[i].last_use = ++now_;
    position_[i] = residents_.size();
    residents_.push_back(i);
  }
  void OnEvict(CachedKey key) override {
    const size_t i = index_.Of(key);
    MOED_CHECK(position_[i] != kOut);
    position_[residents_.back()] = position_[i];
    residents_[position_[i]] = residents_.back();
    residents_.pop_back();
    position_[i] = kOut;
  }
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)> evictable) override {
    size_t victim = kOut;
    for (const size_t i : residents_) {
      if ((victim == kOut || ranks_[i] < ranks_[victim]) && evictable(index_.KeyAt(i))) victim = i;
    }
    if (victim == kOut) return std::nullopt;
    return index_.KeyAt(victim);
  }

 private:
  struct Rank {
    uint64_t uses = 0;      // sum over live sequences
    uint64_t last_use = 0;  // of any sequence; when it was inserted counts as well
    friend auto operator<=>(const Rank&, const Rank&) = default;
  };
  static constexpr size_t kOut = ~size_t{0};

  const ExpertIndex index_;
  absl::flat_hash_map<SessionId, std::vector<uint32_t>> uses_;
  std::vector<Rank> ranks_;
  std::vector<size_t> residents_;
  std::vector<size_t> position_;  // in residents_, kOut when absent
  uint64_t now_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLfuPolicy(const PolicyContext& context) { return std::make_unique<LfuPolicy>(context); }

}  // namespace moed
