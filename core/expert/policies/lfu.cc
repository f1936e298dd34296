#include "core/expert/policies/lfu.h"

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/check.h"
#include "core/expert/expert_index.h"
#include "core/expert/resident_set.h"

namespace moed {
namespace {

// Every sequence counts its own uses; a key's rank is the sum over live sequences, ties go to the more recently used.
class LfuPolicy final : public EvictionPolicy {
 public:
  explicit LfuPolicy(const ExpertModelShape& context)
      : index_(context.moe_layers, context.experts_per_layer, context.precisions),
        total_(index_.size()),
        residents_(index_.size()) {}

  void OnSequenceStart(SequenceId sequence) override {
    const bool is_new = uses_.try_emplace(sequence, index_.size()).second;
    MOED_CHECK(is_new);
  }
  void OnSequenceEnd(SequenceId sequence) override {
    const auto ended = uses_.find(sequence);
    MOED_CHECK(ended != uses_.end());
    for (size_t i = 0; i < index_.size(); ++i) total_[i] -= ended->second[i];
    uses_.erase(ended);
  }
  void OnAccess(CachedKey key, const AccessContext& context) override {
    const size_t i = index_.Of(key);
    const auto sequence = uses_.find(context.sequence);
    MOED_CHECK(sequence != uses_.end());
    ++sequence->second[i];
    ++total_[i];
    residents_.Touch(i);
  }
  void OnInsert(CachedKey key, uint64_t) override { residents_.Insert(index_.Of(key)); }
  void OnEvict(CachedKey key) override { residents_.Remove(index_.Of(key)); }
  size_t memory_bytes() const override { return uses_.size() * index_.size() * sizeof(uint32_t); }
  std::optional<CachedKey> Victim(const Incoming&, absl::FunctionRef<bool(CachedKey)> evictable) override {
    return index_.KeyIfAny(
        residents_.LeastOf([this](uint32_t i) { return total_[i]; }, [&](size_t i) { return evictable(index_.KeyAt(i)); }));
  }

 private:
  const ExpertIndex index_;
  absl::flat_hash_map<SequenceId, std::vector<uint32_t>> uses_;
  std::vector<uint64_t> total_;  // over live sequences
  ResidentSet residents_;        // when it was inserted counts as a use for their order
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLfuPolicy(const ExpertModelShape& context) { return std::make_unique<LfuPolicy>(context); }

PartMemory LfuPolicyMemory(const PartContext& context, const PartOptions&) {
  return {.sequence_bytes = context.model.experts() * static_cast<size_t>(context.model.precisions) * sizeof(uint32_t)};
}

}  // namespace moed
